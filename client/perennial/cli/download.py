"""download: a verified zip, or the layout that Triton reads."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from perennial.cli.command import VERSION, Shell, command
from perennial.cli.output import say, size
from perennial.cli.places import file_at, folder_at
from perennial.cli.triton import lay_out
from perennial.cli.unpack import opened
from perennial.errors import BadAnswer
from perennial.guard import safe_filename, whole_number

UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


class _Size(click.ParamType[int]):
    """Bytes, as a number or with a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number with a unit."""
        found = re.fullmatch(r"([1-9][0-9]{0,14}) ?([kmg]i?b|)", str(value).strip().lower())
        if found is None:
            self.fail(f"{value!r} is no size: write it such as 500MB, 2GiB or 1000000", param, ctx)
        return int(found[1]) * UNITS[found[2]]


SIZE = _Size()


@command("download", short_help="Fetch a version as a verified zip.")
@click.argument("model")
@VERSION
@click.option(
    "--output",
    "-o",
    metavar="FILE|FOLDER",
    help="Where to; into a folder that exists or whose name ends with /, which is made, as MODEL-VERSION.zip or "
    "MODEL-VERSION-onnx.zip. Default: here.",
)
@click.option("--format", "form", default="safetensors", show_default=True, help="safetensors or onnx.")
@click.option("--layout", type=click.Choice(["zip", "files", "triton"]), default="zip", show_default=True)
@click.option(
    "--max-size", type=SIZE, metavar="SIZE", help="Bytes that it may have, such as 500MB; default: 16GiB."
)
def download(
    shell: Shell, model: str, version: str, output: str | None, form: str, layout: str, max_size: int | None
) -> None:
    """Fetch a version and compare its sha256. A download that was cut off goes on when the command is repeated.

    --layout files unpacks it; --layout triton writes MODEL/VERSION/model.onnx with its config.pbtxt and labels for
    Triton Inference Server, and so takes the format onnx.
    """
    client = shell.client()
    number = _number(client.versions.retrieve(model, version).number, version)
    if layout == "triton":
        form = "onnx"
    ending = "" if form == "safetensors" else f"-{form}"
    name = safe_filename(f"{model}-{number}{ending}.zip")
    target = file_at(output, name) if layout == "zip" else folder_at(output) / f".{name}"
    found = client.download(
        model, number, target, format=form, progress=sys.stderr.isatty(), max_bytes=max_size
    )
    path = found.path
    if layout != "zip":
        try:
            lay = lay_out if layout == "triton" else _unpacked
            path = lay(found.path, target.parent, model, number)
        finally:
            found.path.unlink()
    answer = {
        "model": model,
        "version": number,
        "path": str(path),
        "bytes": found.bytes,
        "sha256": found.sha256,
        "verified": found.is_verified,
    }
    end = "verified." if found.is_verified else "not verified: the service sent no digest."
    text = f"{path}: version {number} of {model}, {size(found.bytes)}, sha256 {found.sha256} {end}"
    shell.answer(answer, lambda: say(text))


def _number(value: object, wanted: str) -> int:
    """Return the number of the version that the service names, which is the one that was asked for.

    Raises:
        BadAnswer: it is none, or another one.
    """
    number = whole_number(value, "version")
    if wanted.isdecimal() and number != int(wanted):
        raise BadAnswer(f"The service answers with version {number}, where version {wanted} was asked for.")
    return number


def _unpacked(archive: Path, folder: Path, model: str, number: int) -> Path:
    """Write the files of a download into a folder of their own."""
    target = folder / safe_filename(f"{model}-{number}")
    target.mkdir(parents=True, exist_ok=True)
    with opened(archive) as package:
        for name in package.names:
            package.write(name, target)
    return target
