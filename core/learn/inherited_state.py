"""The state that a method starts a task from, left by its parent version."""

from __future__ import annotations

from collections.abc import Callable

import torch

from core.learn import image_packs
from core.learn.method import Method
from core.protocol.job_spec import SpecVersion
from core.protocol.manifest import FEATURES


def inherit_state(
    method: Method, parent: SpecVersion, device: torch.device, warn: Callable[[str], None]
) -> None:
    """Load the parent's state: all of it for the same method, else the types that can be inherited.

    Warns if earlier tasks are unprotected because state could not be used.
    """
    # features only evaluate the classifier, so their deletion loses no protection
    before, gone = parent.manifest.method, set(parent.deleted) - {FEATURES}
    values = {} if before is None else {k: v for k, v in before.state.items() if k not in gone}
    parts = image_packs.state_of(parent.parts)
    if before is not None and before.name != method.name:
        left = sorted((set(parts) | set(values)) - set(method.inherited_state))
        parts = {kind: named for kind, named in parts.items() if kind in method.inherited_state}
        values = {kind: named for kind, named in values.items() if kind in method.inherited_state}
        if left or (method.inherited_state and not parts):
            unused = f" ({', '.join(left)} not used)" if left else ""
            warn(
                f"the method changed from {before.name} to {method.name}{unused}: "
                "earlier tasks are unprotected where nothing was taken over"
            )
        gone &= set(method.inherited_state)
    if gone:
        warn(
            f"the stored images of earlier tasks ({', '.join(sorted(gone))}) were deleted: "
            f"{method.name} "
            "starts with an empty memory, and earlier tasks are unprotected"
        )
    method.state.load(parts, values, device)
