"""Commands for the catalogue: methods; bases (upload, list, show, rm, architectures)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from perennial.cli.command import Shell, command, json_value
from perennial.cli.groups import Commands
from perennial.cli.output import fields, say, size, table, when
from perennial.types import Base, Method


@command(
    "methods",
    columns=("method", "scenarios", "description"),
    short_help="Continual-learning methods to choose from.",
)
@click.argument("name", required=False)
def methods(shell: Shell, name: str | None) -> None:
    """List continual-learning methods; with NAME show one with its hyper-parameters."""
    client = shell.client()
    if name is not None:
        one = client.methods.retrieve(name)
        shell.answer(one, lambda: _show(one))
        return
    method_list = client.methods.list()
    rows = [(of.name, ", ".join(of.scenarios), of.description) for of in method_list.items]
    shell.rows(method_list.items, rows, "No method.")


def _show(method: Method) -> None:
    fields([("method", method.name), ("scenarios", ", ".join(method.scenarios)), ("source", method.source)])
    say(method.description)
    rows = [(name, _plain(value)) for name, value in method.defaults.items()]
    table(("hyper-parameter", "default"), rows, "It has no hyper-parameters.")
    for scenario, why in method.weak.items():
        say(f"weak for {scenario}: {why}")


def _plain(value: Any) -> str:
    return str(value)


@click.group("bases", cls=Commands)
def bases() -> None:
    """Upload and show weights that models start from."""


@command("upload", bases)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--architecture", required=True, metavar="NAME|JSON", help="The network that they are of.")
@click.option("--image-size", type=int, metavar="PIXELS", help="A side of the images; default 32.")
@click.option("--channels", type=click.IntRange(1, 3), help="1 or 3.")
@click.option(
    "--config", type=json_value, metavar="JSON", help="How images were prepared: mean, std, size, crop …"
)
@click.option("--preset", metavar="NAME", help="imagenet: for weights of torchvision.")
def upload(shell: Shell, file: Path, architecture: str, **values: Any) -> None:
    """Upload weights (safetensors) that models can start from."""
    base = shell.client().bases.create(file, architecture, progress=sys.stderr.isatty(), **values)
    shell.answer(base, lambda: _base(base))


@command("list", bases, columns=("base", "architecture", "bytes", "models"))
def list_bases(shell: Shell) -> None:
    """List uploaded weights, and the models that started from each."""
    base_list = list(shell.client().bases.list())
    rows = [
        (of.id, of.architecture.name, size(of.bytes), ", ".join(one.name for one in of.models))
        for of in base_list
    ]
    shell.rows(base_list, rows, "No base was uploaded.")


@command("rm", bases)
@click.argument("base")
def rm(shell: Shell, base: str) -> None:
    """Delete weights that no model started from."""
    shell.client().bases.delete(base)
    shell.answer({"deleted": base}, lambda: say(f"Base {base} is removed."))


@command("show", bases)
@click.argument("base")
def show(shell: Shell, base: str) -> None:
    """Show one base, by its id."""
    base_details = shell.client().bases.retrieve(base)
    shell.answer(base_details, lambda: _base(base_details))


@command("architectures", bases, columns=("architecture", "family", "pixels from", "description"))
def architectures(shell: Shell) -> None:
    """List network architectures for models."""
    architecture_list = list(shell.client().architectures.list())
    rows = [(of.name, of.family, of.min_size, of.description) for of in architecture_list]
    shell.rows(architecture_list, rows, "None.")


def _base(base: Base) -> None:
    rows = [("base", base.id), ("architecture", base.architecture.name), ("bytes", size(base.bytes))]
    fields([*rows, ("sha256", base.sha256), ("created", when(base.created_at))])
