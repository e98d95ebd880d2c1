"""Commands for the catalogue: methods; bases (upload, list, show, rm, architectures)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from perennial.cli.command import CommandContext, cli_command, parse_json_option
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.output import format_bytes, format_time, print_fields, print_table, print_text
from perennial.types import Base, Method


@cli_command(
    "methods",
    columns=("method", "scenarios", "description"),
    short_help="List continual-learning methods.",
)
@click.argument("name", required=False)
def run_list_or_show_methods_command(shell: CommandContext, name: str | None) -> None:
    """List continual-learning methods; with NAME show one with its hyper-parameters."""
    client = shell.create_client()
    if name is not None:
        one = client.methods.retrieve(name)
        shell.print_result(one, lambda: _print_method_fields(one))
        return
    method_list = client.methods.list()
    rows = [
        (method.name, ", ".join(method.scenarios), method.description)
        for method in method_list.items
    ]
    shell.print_rows(method_list.items, rows, "No method.")


def _print_method_fields(method: Method) -> None:
    print_fields(
        [
            ("method", method.name),
            ("scenarios", ", ".join(method.scenarios)),
            ("source", method.source),
        ]
    )
    print_text(method.description)
    rows = [(name, _format_default_value(value)) for name, value in method.defaults.items()]
    print_table(("hyper-parameter", "default"), rows, "It has no hyper-parameters.")
    for scenario, why in method.weak.items():
        print_text(f"weak for {scenario}: {why}")


def _format_default_value(value: Any) -> str:
    return str(value)


@click.group("bases", cls=SuggestingCommandGroup)
def base_commands() -> None:
    """Upload and show weights that models start from."""


@cli_command("upload", base_commands)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--architecture", required=True, metavar="NAME|JSON", help="Network that the weights belong to."
)
@click.option("--image-size", type=int, metavar="PIXELS", help="Side of the images; default 32.")
@click.option("--channels", type=click.IntRange(1, 3), help="1 or 3.")
@click.option(
    "--config",
    type=parse_json_option,
    metavar="JSON",
    help="Preparation of the images: mean, std, size, crop and others.",
)
@click.option("--preset", metavar="NAME", help="imagenet: for torchvision weights.")
def run_upload_base_command(
    shell: CommandContext, file: Path, architecture: str, **values: Any
) -> None:
    """Upload weights (safetensors) that models can start from."""
    base = shell.create_client().bases.create(
        file, architecture, progress=sys.stderr.isatty(), **values
    )
    shell.print_result(base, lambda: _print_base_fields(base))


@cli_command("list", base_commands, columns=("base", "architecture", "bytes", "models"))
def run_list_bases_command(shell: CommandContext) -> None:
    """List uploaded weights, and the models that started from each."""
    base_list = list(shell.create_client().bases.list())
    rows = [
        (
            base.id,
            base.architecture.name,
            format_bytes(base.bytes),
            ", ".join(one.name for one in base.models),
        )
        for base in base_list
    ]
    shell.print_rows(base_list, rows, "No base was uploaded.")


@cli_command("rm", base_commands)
@click.argument("base")
def run_delete_base_command(shell: CommandContext, base: str) -> None:
    """Delete weights that no model started from."""
    shell.create_client().bases.delete(base)
    shell.print_result({"deleted": base}, lambda: print_text(f"Base {base} is removed."))


@cli_command("show", base_commands)
@click.argument("base")
def run_show_base_command(shell: CommandContext, base: str) -> None:
    """Show one base, by its id."""
    base_details = shell.create_client().bases.retrieve(base)
    shell.print_result(base_details, lambda: _print_base_fields(base_details))


@cli_command(
    "architectures", base_commands, columns=("architecture", "family", "pixels from", "description")
)
def run_list_architectures_command(shell: CommandContext) -> None:
    """List network architectures for models."""
    architecture_list = list(shell.create_client().architectures.list())
    rows = [
        (architecture.name, architecture.family, architecture.min_size, architecture.description)
        for architecture in architecture_list
    ]
    shell.print_rows(architecture_list, rows, "None.")


def _print_base_fields(base: Base) -> None:
    rows = [
        ("base", base.id),
        ("architecture", base.architecture.name),
        ("bytes", format_bytes(base.bytes)),
    ]
    print_fields([*rows, ("sha256", base.sha256), ("created", format_time(base.created_at))])
