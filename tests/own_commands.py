"""The command `perennial` of this checkout, with what its service adds, whatever is installed."""

import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "entry-points"
]["perennial.commands"]
"""Command of the service → module and function."""


def make_environment(folder: Path) -> dict[str, str]:
    """Make an environment in which `perennial` is found, and the home is an empty folder.

    Args:
        folder: gets `bin/perennial`, the metadata by which the service's commands are found, and
            `home`.
    """
    metadata = folder / "bin" / "perennial_service-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: perennial-service\nVersion: 0\n"
    )
    lines = ["[perennial.commands]", *(f"{name} = {target}" for name, target in NAMED.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    path = f"{ROOT}:{ROOT / 'client'}:{metadata.parent}"
    script = folder / "bin" / "perennial"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" -m perennial "$@"\n')
    script.chmod(0o755)
    return {
        **os.environ,
        "HOME": str(folder / "home"),
        "PATH": f"{script.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": path,
    }
