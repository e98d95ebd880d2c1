"""The command predict: labels for files and folders of images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from perennial.cli.command import DYNAMIC, VERSION, CommandContext, cli_command
from perennial.cli.output import print_json_line, print_notice
from perennial.errors import BadAnswer
from perennial.pack.names import IMAGE_SUFFIXES
from perennial.shapes import convert_to_json
from perennial.text import make_text_one_line
from perennial.types import Prediction

# Within the limits of the service: 256 images and, by default, 64 MiB.
MOST_IMAGES, MOST_BYTES = 64, 16 << 20
"""Maximum images and bytes per request."""


@cli_command("predict", columns=DYNAMIC, short_help="Predict the labels of images.")
@click.argument("model")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@VERSION
@click.option(
    "--top-k",
    "-k",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of labels for each image.",
)
@click.option("--task", type=int, help="In the scenario task: the task whose head predicts.")
def run_predict_command(
    shell: CommandContext,
    model: str,
    paths: tuple[Path, ...],
    version: str,
    top_k: int,
    task: int | None,
) -> int:
    """Predict what images show. PATHS are image files, or folders that are searched for them.

    With --json one line per image. Exits with 1 if an image could not be used; the others are
    predicted.
    """
    client, rows, unusable, image_count = shell.create_client(), [], 0, 0
    for files in group_files_into_predict_requests(iterate_image_files(paths)):
        response = client.predict(model, files, version=version, top_k=top_k, task=task)
        # They are matched by position, so a missing one would shift all that follow.
        if len(response.predictions) != len(files):
            raise BadAnswer(
                f"The service answered {len(response.predictions)} of {len(files)} images."
            )
        for file, one in zip(files, response.predictions, strict=True):
            image_count += 1
            if isinstance(one, Prediction):
                cells = [f"{label} {share:.3f}" for label, share in one.probabilities.items()]
                rows.append((str(file), *cells[:top_k]))
            else:
                unusable += 1
                print_notice(f"{file}: {make_text_one_line(one.error.detail)}")
            # JSON is printed as it comes; rows need a common width, and wait for the last image.
            if shell.is_json:
                print_json_line(
                    {"path": str(file), "version": response.version, **convert_to_json(one)}
                )
    if not image_count:
        raise click.UsageError(
            f"There is no image in {', '.join(map(str, paths))}: "
            f"{', '.join(sorted(IMAGE_SUFFIXES))}."
        )
    if not shell.is_json:
        width = max((len(row) for row in rows), default=1)
        headings = (
            "image",
            *("label" if number == 1 else f"{number}." for number in range(1, width)),
        )
        shell.print_rows(None, [row + ("",) * (width - len(row)) for row in rows], "", headings)
    return 1 if unusable else 0


def group_files_into_predict_requests(files: Iterator[Path]) -> Iterator[list[Path]]:
    """Yield image files in lists that fit one predict request."""
    chosen: list[Path] = []
    total_bytes = 0
    for file in files:
        size = file.stat().st_size
        # A single file beyond the limit is sent as well: the service decides about it.
        if chosen and (len(chosen) == MOST_IMAGES or total_bytes + size > MOST_BYTES):
            yield chosen
            chosen, total_bytes = [], 0
        chosen.append(file)
        total_bytes += size
    if chosen:
        yield chosen


def iterate_image_files(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the given image files, and the image files in the given folders."""
    for path in paths:
        if path.is_dir():
            images = (
                one
                for one in sorted(path.rglob("*"))
                if one.suffix.lower() in IMAGE_SUFFIXES and one.is_file()
            )
            yield from images
        else:
            yield path
