"""The command download: a verified zip, its files, or a model repository for Triton."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from perennial.cli.command import VERSION, CommandContext, cli_command
from perennial.cli.models.triton import write_triton_folder
from perennial.cli.models.unpack import open_downloaded_version_zip
from perennial.cli.output import format_bytes, print_text
from perennial.errors import BadAnswer
from perennial.guard import require_safe_filename, require_whole_number_in_response

UNITS = {
    "": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}


class _ByteSizeType(click.ParamType[int]):
    """click type of an option for a number of bytes with an optional unit, such as 500MB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse a number of bytes with an optional unit, such as 500MB."""
        match = re.fullmatch(r"([1-9][0-9]{0,14}) ?([kmg]i?b|)", str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is no size: write it such as 500MB, 2GiB or 1000000", param, ctx)
        return int(match[1]) * UNITS[match[2]]


SIZE = _ByteSizeType()


@cli_command("download", short_help="Download a version as a verified zip.")
@click.argument("model")
@click.argument("version_argument", metavar="[VERSION]", required=False)
@VERSION
@click.option(
    "--output",
    "-o",
    metavar="FILE|FOLDER",
    help="Target file or folder. A name that ends with / is a folder, which is created. In a folder, "
    "the file is MODEL-VERSION.zip or MODEL-VERSION-onnx.zip. Default: here.",
)
@click.option(
    "--format", "form", default="safetensors", show_default=True, help="safetensors or onnx."
)
@click.option(
    "--layout", type=click.Choice(["zip", "files", "triton"]), default="zip", show_default=True
)
@click.option(
    "--max-size",
    type=SIZE,
    metavar="SIZE",
    help="Largest size to accept, such as 500MB; default: 16GiB.",
)
def run_download_version_command(
    shell: CommandContext,
    model: str,
    version_argument: str | None,
    version: str,
    output: str | None,
    form: str,
    layout: str,
    max_size: int | None,
) -> None:
    """Download a version and verify its SHA-256. Repeat the command to resume an interrupted download.

    --layout files unpacks it; --layout triton writes MODEL/VERSION/model.onnx with its config.pbtxt
    and labels for Triton Inference Server, and therefore uses the format onnx.
    """
    if version_argument is not None:
        # An option that was left out cannot be distinguished from its default here.
        if version not in ("production", version_argument):
            raise click.UsageError("There are two versions: VERSION and --version. Name one.")
        version = version_argument
    client = shell.create_client()
    # Resolved once: if the alias moves meanwhile, name and content still belong together.
    number = _require_requested_version(client.versions.retrieve(model, version).number, version)
    if layout == "triton":
        form = "onnx"
    ending = "" if form == "safetensors" else f"-{form}"
    # Named by the number, because an alias may point elsewhere tomorrow.
    name = require_safe_filename(f"{model}-{number}{ending}.zip")
    # The zip is hidden if it is only unpacked, and removed afterwards.
    target = (
        resolve_output_path_and_make_folder(output, name)
        if layout == "zip"
        else get_or_create_output_folder(output) / f".{name}"
    )
    downloaded = client.download(
        model, number, target, format=form, progress=sys.stderr.isatty(), max_bytes=max_size
    )
    path = downloaded.path
    if layout != "zip":
        try:
            lay = write_triton_folder if layout == "triton" else _unpack_download
            path = lay(downloaded.path, target.parent, model, number)
        finally:
            downloaded.path.unlink()
    result = {
        "model": model,
        "version": number,
        "path": str(path),
        "bytes": downloaded.bytes,
        "sha256": downloaded.sha256,
        "verified": downloaded.is_verified,
    }
    end = "verified." if downloaded.is_verified else "not verified: the service sent no digest."
    text = (
        f"{path}: version {number} of {model}, {format_bytes(downloaded.bytes)}, sha256 "
        f"{downloaded.sha256} {end}"
    )
    shell.print_result(result, lambda: print_text(text))


def resolve_output_path_and_make_folder(destination: str | None, name: str) -> Path:
    """Return the path of the file to write a download into, creating its folder if necessary.

    Args:
        destination: a file; or a folder, which exists or ends with a slash. None: the working directory.
        name: name of the file in a folder.
    """
    text = destination or "."
    is_folder = text.endswith((os.sep, os.altsep or os.sep)) or Path(text).is_dir()
    target = Path(text) / name if is_folder else Path(text)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def get_or_create_output_folder(destination: str | None) -> Path:
    """Return the folder to write a download into, creating it if necessary."""
    target = Path(destination or ".")
    target.mkdir(parents=True, exist_ok=True)
    return target


def _require_requested_version(value: object, requested: str) -> int:
    """Check and return the number of the version that the service returned for a download.

    Raises:
        BadAnswer: it is not a number, or not the requested version.
    """
    number = require_whole_number_in_response(value, "version")
    if requested.isdecimal() and number != int(requested):
        raise BadAnswer(
            f"The service answers with version {number}, where version {requested} was asked for."
        )
    return number


def _unpack_download(archive: Path, folder: Path, model: str, number: int) -> Path:
    """Extract a downloaded version into a folder named after model and version."""
    target = folder / require_safe_filename(f"{model}-{number}")
    target.mkdir(parents=True, exist_ok=True)
    with open_downloaded_version_zip(archive) as package:
        for name in package.names:
            package.unpack_file(name, target)
    return target
