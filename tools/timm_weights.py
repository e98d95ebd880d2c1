"""Generator of the table of timm's pretrained weights, for processes that never load timm.

`python -m tools.timm_weights core/learning/networks/backbones/timm_weights.json` builds each network once
without memory (minutes).
"""

import argparse
import json
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.learning.networks.backbones.timm_probe import (
    TimmNetworkProperties,
    measure_timm_network_properties,
)
from core.learning.timm_import import import_timm_models


def build_timm_weights_table(part: int, parts: int) -> dict[str, Any]:
    """Return the table of timm's pretrained weights: usable ones, and why others are refused.

    Args:
        part: number of this process, from 0; it builds every `parts`-th architecture.
        parts: number of processes that share the work.

    Returns:
        `weights`: name → properties; `refused`: name → reason.
    """
    models = import_timm_models()
    names = models.list_pretrained()
    architectures = set(sorted({name.partition(".")[0] for name in names})[part::parts])
    networks: dict[tuple[str, int], TimmNetworkProperties | str] = {}
    weights: dict[str, Mapping[str, Any]] = {}
    refused: dict[str, str] = {}
    for name in sorted(name for name in names if name.partition(".")[0] in architectures):
        pretrained_config = models.get_pretrained_cfg(name)
        _, height, width = pretrained_config.input_size
        # The service's images are square.
        if height != width:
            refused[name] = f"its images are not square but {width} × {height}"
            continue
        # Weights of one architecture and size share a network, which is built only once.
        key = name.partition(".")[0], height
        if key not in networks:
            networks[key] = _measure_timm_network_or_explain(name, height)
            print(key[0], height, networks[key], sep="\t", file=sys.stderr, flush=True)
        network = networks[key]
        if isinstance(network, str):
            refused[name] = network
        else:
            weights[name] = {**_extract_timm_config_fields(pretrained_config), **asdict(network)}
    return {"weights": weights, "refused": refused}


def _measure_timm_network_or_explain(name: str, size: int) -> TimmNetworkProperties | str:
    """Build a timm network to measure its properties; return them, or why it cannot be used."""
    try:
        return measure_timm_network_properties(name, size)
    except Exception as error:  # noqa: BLE001 - whatever its code raises is the reason
        return str(error).partition("\n")[0][:200] or type(error).__name__


def _extract_timm_config_fields(config: Any) -> dict[str, Any]:
    """Extract repository, licence and image format from timm's config of some weights."""
    return {
        "repository": config.hf_hub_id or "",
        "licence": config.license or "",
        "size": config.input_size[1],
        "channels": config.input_size[0],
        "mean": list(config.mean),
        "std": list(config.std),
        "interpolation": config.interpolation,
        "crop": config.crop_pct,
    }


def _format_table_as_json(rows: dict[str, Any]) -> str:
    """Format the weights table as JSON with a line for each name."""
    # Sorted, so that a new table differs from the old one only where timm does.
    parts = [
        f"{json.dumps(key)}: {{\n"
        + ",\n".join(
            f"{json.dumps(name)}: {json.dumps(row, sort_keys=True, ensure_ascii=False)}"
            for name, row in sorted(entries.items())
        )
        + "\n}"
        for key, entries in sorted(rows.items())
    ]
    return "{" + ",\n".join(parts) + "}\n"


def main(arguments: list[str]) -> None:
    """Write the table of timm's pretrained weights to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", type=int, default=0, help="of the architectures, counted from 0")
    parser.add_argument("--parts", type=int, default=1)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    rows = build_timm_weights_table(chosen.part, chosen.parts)
    chosen.out.write_text(_format_table_as_json(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
