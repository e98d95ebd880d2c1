"""Network families: extensions of a plain network by a method, rebuilt from a manifest.

A family is a subclass of `Network` with its line here. Its `describe_for_manifest` goes into the
manifest as `network`, its `list_tensor_names_by_part` list the parts that hold its additions; the
plain family has neither. A model keeps its family for life, except that every family can start from
version 0, which is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.learning.networks.der_net import DerNetwork
from core.learning.networks.dne.network import DneNetwork
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.networks.network import Network
from core.learning.networks.prompts import PromptedNetwork

FAMILIES: dict[str, Callable[[Network, Mapping[str, Any]], Network]] = {
    DneNetwork.family: DneNetwork.from_description,
    LinearisedNetwork.family: LinearisedNetwork.from_description,
    DerNetwork.family: DerNetwork.from_description,
    PromptedNetwork.family: PromptedNetwork.from_description,
}


def rebuild_described_network(plain: Network, description: Mapping[str, Any] | None) -> Network:
    """Rebuild the network that a manifest's `network` describes, with weights to be loaded.

    Raises ValueError for an unknown family, a missing field, or a backbone that does not fit the
    family.
    """
    if description is None:
        return plain
    # A manifest may be of a newer version of the code, with a family that this one lacks.
    family = description.get("family")
    if family not in FAMILIES:
        raise ValueError(f"unknown network family {family!r}; known: plain, {', '.join(FAMILIES)}")
    try:
        return FAMILIES[family](plain, description)
    except KeyError as error:
        raise ValueError(f"the manifest's network lacks {error}") from error
