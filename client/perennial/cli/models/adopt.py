"""Command `adopt`: bring a classifier from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from perennial.class_file import read_class_names_of_file
from perennial.cli.command import RECIPE, CommandContext, cli_command, parse_json_option
from perennial.cli.models.recipe import describe_architecture
from perennial.cli.models.references import (
    ClassifierAndClosedFormAccuracies,
    pack_reference_images_into_batches,
    train_and_compare_closed_form_model,
)
from perennial.cli.output import print_fields, print_text
from perennial.shapes import convert_to_json
from perennial.types import Model

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@cli_command("adopt", short_help="Bring a classifier from elsewhere as version 1 of a new model.")
@click.argument("model")
@click.argument("weights", type=FILE)
@click.option(
    "--architecture", required=True, metavar="NAME|JSON", help="Network that the weights belong to."
)
@click.option(
    "--classes",
    required=True,
    type=FILE,
    help="Names of its outputs in order: one a line, or JSON.",
)
@click.option("--image-size", type=int, metavar="PIXELS", help="Side of its images; default 32.")
@click.option("--channels", type=click.IntRange(1, 3), help="1 or 3.")
@click.option(
    "--config",
    type=parse_json_option,
    metavar="JSON",
    help="Preparation of its images: mean, std, size, crop and others.",
)
@click.option("--preset", metavar="NAME", help="imagenet: mean and std of torchvision weights.")
@click.option(
    "--reference",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with a folder of 5 images or more of each class: a closed form starts from them.",
)
@RECIPE
def run_adopt_classifier_command(
    shell: CommandContext,
    model: str,
    weights: Path,
    architecture: str,
    classes: Path,
    reference: Path | None,
    **values: Any,
) -> None:
    """Create MODEL, whose version 1 is the classifier in WEIGHTS.

    WEIGHTS is a safetensors file of its whole state dict. Send held-out images next, as a batch
    with a folder test alone: they measure version 1, and every later version.

    With references, a second model, MODEL-references, starts from these on the classifier's
    features. Both are measured on the same images, and the better one is advised.
    """
    client = shell.create_client()
    # Before anything is sent, so that a wrong folder leaves nothing behind.
    references = (
        None
        if reference is None
        else pack_reference_images_into_batches(reference, read_class_names_of_file(classes))
    )
    adopted = client.models.adopt(
        model, weights, architecture, classes, progress=sys.stderr.isatty(), **values
    )
    if references is None:
        shell.print_result(adopted, lambda: _print_adopted_model(adopted))
        return
    accuracies = train_and_compare_closed_form_model(client, adopted.name, references)
    shell.print_result(
        accuracies.to_dict(),
        lambda: _print_classifier_and_closed_form_accuracies(adopted, accuracies),
    )


def _print_classifier_and_closed_form_accuracies(
    adopted: Model, accuracies: ClassifierAndClosedFormAccuracies
) -> None:
    _print_adopted_model(adopted)
    print_fields(
        [
            (f"accuracy of {accuracies.model}", accuracies.classifier_accuracy),
            (f"accuracy of {accuracies.closed_form}", accuracies.closed_form_accuracy),
        ]
    )
    print_text(f"On the same held-out references. Go on with {accuracies.advised}.")


def _print_adopted_model(model: Model) -> None:
    print_fields(
        [
            ("model", model.name),
            ("id", model.id),
            ("version", "1, which came with the model"),
            ("architecture", describe_architecture(model.architecture)),
            ("method", convert_to_json(model.recipe)["method"]["name"]),
        ]
    )
