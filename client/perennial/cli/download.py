"""download: a verified zip, or the layout that Triton reads."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import click

from perennial.cli.command import VERSION, Shell, command
from perennial.cli.output import say, size
from perennial.cli.triton import lay_out


@command("download", short_help="Fetch a version as a verified zip.")
@click.argument("model")
@VERSION
@click.option(
    "--output",
    "-o",
    metavar="FILE|FOLDER",
    help="Where to; default: here, MODEL-VERSION.zip or MODEL-VERSION-onnx.zip.",
)
@click.option("--format", "form", default="safetensors", show_default=True, help="safetensors or onnx.")
@click.option("--layout", type=click.Choice(["zip", "files", "triton"]), default="zip", show_default=True)
def download(shell: Shell, model: str, version: str, output: str | None, form: str, layout: str) -> None:
    """Fetch a version and verify its sha256. A download that was cut off goes on when the command is repeated.

    --layout files unpacks it; --layout triton writes MODEL/VERSION/model.onnx with its config.pbtxt and labels for
    Triton Inference Server, and so takes the format onnx.
    """
    client = shell.client()
    number = client.versions.retrieve(model, version).number
    if layout == "triton":
        form = "onnx"
    folder = Path(output or ".") if layout != "zip" else None
    target = (
        Path(output)
        if output and layout == "zip"
        else Path(f"{model}-{number}{'' if form == 'safetensors' else f'-{form}'}.zip")
    )
    if folder is not None:
        target = folder / f".{model}-{number}-{form}.zip"
    found = client.download(model, number, target, format=form, progress=sys.stderr.isatty())
    path = found.path
    if folder is not None:
        path = (
            lay_out(found.path, folder, model, number)
            if layout == "triton"
            else _unpacked(found.path, folder, model, number)
        )
        found.path.unlink()
    answer = {
        "model": model,
        "version": number,
        "path": str(path),
        "bytes": found.bytes,
        "sha256": found.sha256,
    }
    shell.answer(
        answer,
        lambda: say(
            f"{path}: version {number} of {model}, {size(found.bytes)}, sha256 {found.sha256} verified."
        ),
    )


def _unpacked(archive: Path, folder: Path, model: str, number: int) -> Path:
    """The files of a download in a folder of their own."""
    target = folder / f"{model}-{number}"
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            name = Path(entry.filename).name  # nothing of an archive leaves the folder
            if name and not entry.is_dir():
                with opened.open(entry) as source, (target / name).open("wb") as file:
                    shutil.copyfileobj(source, file)
    return target
