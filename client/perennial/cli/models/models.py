"""models: list, create, show, set, rebase, rm, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perennial import words
from perennial.cli.batches.following import wait_for_job
from perennial.cli.command import RECIPE, CommandContext, cli_command, parse_json_option
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.models.rebase import run_rebase_model_command
from perennial.cli.models.recipe import build_recipe_rows, describe_architecture
from perennial.cli.output import (
    Cell,
    format_bytes,
    format_time,
    is_stdout_terminal,
    print_fields,
    print_text,
    require_user_confirmation,
)
from perennial.cli.states import WAITS, build_state_filter_option
from perennial.guard import quote_shell_word
from perennial.text import make_text_one_line
from perennial.types import ListedModel, Model

if TYPE_CHECKING:
    from perennial import Perennial

Work = TypeVar("Work", bound=Callable[..., Any])
STOP = click.Choice(["stop", "continue"])


@click.group("models", cls=SuggestingCommandGroup)
def model_commands() -> None:
    """Create, list, show, change, rebase and delete models."""


model_commands.add_command(run_rebase_model_command)


@cli_command(
    "list",
    model_commands,
    columns=(
        *("model", "scenario", "production", "accuracy", "images"),
        *("forgetting", "last job", "waits"),
    ),
)
@click.argument("query", required=False)
@build_state_filter_option("--waits", "wanted", WAITS)
def run_list_models_command(shell: CommandContext, query: str | None, wanted: str | None) -> None:
    """List all models; with QUERY, those whose name contains it."""
    every = shell.create_client().models.list(query=query, summary=True)
    matching_models = [
        one for one in every if wanted is None or wanted in {entry.kind for entry in one.attention}
    ]
    shell.print_rows(
        matching_models,
        map(_build_model_row, matching_models),
        "No model yet: make one with `perennial models create NAME`.",
    )


def _build_model_row(model: ListedModel) -> tuple[Cell, ...]:
    waits = ", ".join(f"{entry.kind} {entry.task or ''}".strip() for entry in model.attention)
    summary = model.summary
    if summary is None:  # an older service does not send it
        return (
            model.name,
            model.scenario,
            model.aliases.get("production"),
            None,
            None,
            None,
            None,
            waits,
        )
    last = None if summary.last_job is None else summary.last_job.state
    return (
        *(model.name, model.scenario, summary.production, summary.acc, summary.images),
        *(summary.forgetting, last, waits),
    )


CHECKS = {
    "forgotten": "greatest share of earlier tasks' images that it gets wrong and production right.",
    "confused": "greatest share of these images that it predicts as a new class.",
    "class_lost": "share of correct predictions at which a class that production knows is lost.",
    "drifted": "as --forgotten, for each task against the best of the last 20 versions.",
    "learned_nothing": "share of correct predictions on new classes at which nothing was learned.",
    "features_collapsed": "greatest loss of the features' accuracy against the best of the last 20 "
    "ancestors.",
}
"""Checks against production, with the explanations of their options."""
LIMITS = {
    "max_forgetting": "greatest forgetting, 0 to 1.",
    "min_new_task": "least accuracy on the new batch, 0 to 1.",
    "min_acc": "least mean accuracy, 0 to 1.",
    "max_predicted_loss_rise": "greatest rise of the loss that the method forecasts.",
    "max_negative_flips": "greatest share of images that it gets wrong and production right, "
    "0 to 1.",
    "min_coverage": "least share of sure predictions, 0 to 1.",
    **CHECKS,
}
"""Limits of a gate, with the explanations of their options."""
NONE = "none"
"""Value that switches a limit off; `off` means the same."""


class _GateLimitType(click.ParamType[float | str]):
    """click type of an option for a gate limit: a number or `none`."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        """Parse a gate limit: a number, whose range the service checks, or `none`."""
        text = str(value).strip().lower()
        if text in (NONE, "off"):
            return NONE
        try:
            return float(text)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {NONE}", param, ctx)


LIMIT = _GateLimitType()


def _build_model_settings_decorator() -> Callable[[Work], Work]:
    """Return a decorator that adds the options shared by `models create` and `models set`."""

    def add_model_options(work: Work) -> Work:
        # The first decorator is applied innermost, so the order is the reverse of that in `--help`.
        options = [
            click.option(
                "--description", metavar="TEXT", help="Description of the model; '' removes it."
            ),
            click.option(
                "--tag",
                "tags",
                multiple=True,
                metavar="TAG",
                help="Tag of the model; can be repeated; '' removes all.",
            ),
            click.option(
                "--allow-lost-classes/--keep-classes",
                default=None,
                help="Allow versions that lack classes, or do not.",
            ),
            click.option(
                "--training-data-days",
                type=LIMIT,
                metavar="DAYS|none",
                help="Days for which images are kept; none: as for a new model.",
            ),
            click.option(
                "--on-failed", type=STOP, help="After a failed job: wait for you, or continue."
            ),
            click.option(
                "--on-rejected",
                type=STOP,
                help="After a rejected batch: wait for you, or continue.",
            ),
            click.option(
                "--on-held", type=STOP, help="After a held version: wait for you, or continue."
            ),
            click.option(
                "--precision",
                type=LIMIT,
                metavar="RATE|none",
                help="Share of sure predictions that is promised to be correct, such as 0.98; none: no "
                "promise.",
            ),
            *(
                click.option(
                    f"--{name.replace('_', '-')}",
                    type=LIMIT,
                    metavar="RATE|none",
                    help=f"Gate: {text}",
                )
                for name, text in reversed(LIMITS.items())
            ),
            click.option(
                "--checks",
                type=click.Choice(["on", "off"]),
                help="Gate: all checks against production, with the limits of a new model, or none.",
            ),
            RECIPE,
        ]
        for option in options:
            work = option(work)
        return work

    return add_model_options


def _build_model_fields_from_options(values: dict[str, Any]) -> dict[str, Any]:
    """Build the API's request fields from the given options of `models create` or `set`."""
    limits = {name: values.pop(name) for name in LIMITS}
    # null switches a limit off; a limit that is left out stays as it is.
    gate: dict[str, Any] = {
        name: None if value == NONE else value
        for name, value in limits.items()
        if value is not None
    }
    checks = values.pop("checks")
    if checks is not None:
        gate["checks"] = checks
    precision, tags = values.pop("precision"), [tag for tag in values["tags"] if tag]
    # `--tag ''` is given without naming a tag, and removes all of them.
    is_tagged = bool(values.pop("tags"))
    request_fields = {name: value for name, value in values.items() if value is not None}
    if is_tagged:
        request_fields["tags"] = tags
    if precision is not None:
        request_fields["answers"] = {"precision": precision} if precision not in (0, NONE) else None
    if request_fields.get("training_data_days") == NONE:
        request_fields["training_data_days"] = None
    if request_fields.get("description") == "":
        request_fields["description"] = None
    return {**request_fields, **({"gate": gate} if gate else {})}


@cli_command("create", model_commands)
@click.argument("name")
@click.option(
    "--scenario", type=click.Choice(["class", "task", "data"]), default="class", show_default=True
)
@click.option("--architecture", metavar="NAME|JSON", help="Network; default: that of the base.")
@click.option(
    "--base",
    metavar="NAME|ID|JSON",
    help="Weights to start from: perennial/efficientnet-lite0 (photos; default if the network is not "
    "trained), perennial/resnet20-cifar100 (small images), random, pretrained, the id of an "
    "upload, or a version.",
)
@click.option(
    "--image",
    type=parse_json_option,
    metavar="JSON",
    help='Size and channels of the images, such as \'{"size": 32, "channels": 3}\'.',
)
@click.option(
    "--selection",
    is_flag=True,
    default=None,
    help="Set images of each batch aside that are never learned, to compare trials on them.",
)
@click.option("--exist-ok", is_flag=True, help="If a model of this name exists, show it.")
@click.option(
    "--wait", "is_awaited", is_flag=True, help="Wait until the weights of the base are ready."
)
@_build_model_settings_decorator()
def run_create_model_command(
    shell: CommandContext, name: str, scenario: str, exist_ok: bool, is_awaited: bool, **values: Any
) -> None:
    """Create a model. Only its NAME is required."""
    request_fields = _build_model_fields_from_options(values)
    for field in ("architecture", "base"):
        # Both options take a name or JSON, and no name begins with a brace.
        if request_fields.get(field, "").startswith("{"):
            request_fields[field] = parse_json_option(request_fields[field])
    client = shell.create_client()
    model = client.models.create(name, scenario, exist_ok=exist_ok, **request_fields)  # type: ignore[arg-type]
    if is_awaited and model.job is not None:
        model = _wait_until_base_fetched(shell, client, model, model.job)
    shell.print_result(model, lambda: _print_new_model(model))


def _wait_until_base_fetched(
    shell: CommandContext, client: Perennial, model: Model, job: str
) -> Model:
    """Wait for the job that fetches a new model's base weights. Raises JobEnded if it fails."""
    handle = client.job(job)
    error = handle.ending(wait_for_job(shell, handle))
    if error is not None:
        error.add_note(f"Model {make_text_one_line(model.name)} is made, without its base.")
        raise error
    return client.models.retrieve(model.id)


@cli_command("show", model_commands)
@click.argument("model")
def run_show_model_command(shell: CommandContext, model: str) -> None:
    """Show one model: its settings, its versions, and what waits for you."""
    model_details = shell.create_client().models.retrieve(model)
    shell.print_result(model_details, lambda: _print_model_fields(model_details))


def _print_new_model(model: Model) -> None:
    """Print a new model's settings and the next command; off a terminal, only its fields."""
    if not is_stdout_terminal():
        _print_model_fields(model)
        return
    method = model.recipe.method.name if model.recipe.method else "its recipe"
    name = quote_shell_word(model.name)
    print_text(
        f"Model {make_text_one_line(model.name)} ({model.id}): network {describe_architecture(model.architecture)}, "
        f"images of {model.image.size} × {model.image.size} pixels, method {method}."
    )
    _print_how_to_follow_base_fetch(model)
    for warning in model.warnings:
        print_text(f"note: {words.replace_requests_by_commands(warning)}")
    _print_pending_decisions(model)
    print_text(f"All settings: perennial models show {name}")
    print_text(f"Send a batch: perennial submit {name} FOLDER")


def _print_model_fields(model: Model) -> None:
    limits = {name: value for name, value in model.gate.to_dict().items() if value is not None}
    aliases = ", ".join(
        f"{name} {number}" for name, number in sorted(model.aliases.items()) if number is not None
    )
    production = "follows the lineage" if model.production_follows else "stays where it was put"
    rows = [
        ("name", model.name),
        ("id", model.id),
        ("scenario", model.scenario),
        ("architecture", describe_architecture(model.architecture)),
        ("image", f"{model.image.size} pixels, {model.image.channels} channels"),
        ("description", model.description),
        ("tags", ", ".join(model.tags or []) or None),
        *build_recipe_rows(model.recipe),
        (
            "gate",
            ", ".join(f"{name} {value}" for name, value in limits.items())
            or "asks nothing but lost classes",
        ),
        ("aliases", aliases or None),
        ("production", production),
        ("state", model.state),
        ("job", model.job),
        ("created", format_time(model.created_at)),
    ]
    print_fields(rows)
    off = [name for name in CHECKS if limits.get(name) is None]
    if off:
        print_text(
            f"checks off: {', '.join(off)} (perennial models set {quote_shell_word(model.name)} --checks "
            f"on)"
        )
    _print_how_to_follow_base_fetch(model)
    for warning in model.warnings:
        print_text(f"warning: {words.replace_requests_by_commands(warning)}")
    _print_pending_decisions(model)


def _print_how_to_follow_base_fetch(model: Model) -> None:
    """Print how to follow the job that fetches the model's base weights, if there is one."""
    # A base that cannot be fetched is an item of `attention`, which names the remedy.
    if model.job is not None and not model.attention:
        print_text(
            f"Its base is being fetched. Follow that with: perennial jobs watch "
            f"{quote_shell_word(model.job)}"
        )


def _print_pending_decisions(model: Model) -> None:
    """Print the decisions that a model waits for, and the commands that make them."""
    for entry in model.attention:
        print_text("\n" + "\n".join(words.describe_attention_item(model.name, entry)))


@cli_command("set", model_commands)
@click.argument("model")
@_build_model_settings_decorator()
def run_change_model_command(shell: CommandContext, model: str, **values: Any) -> None:
    """Change a model's recipe, gate and rules, for later batches."""
    changes = _build_model_fields_from_options(values)
    if not changes:
        raise click.UsageError(
            "Say what to change, such as --max-forgetting 0.1; `perennial models set --help` has "
            "all."
        )
    changed_model = shell.create_client().models.update(model, **changes)
    shell.print_result(changed_model, lambda: _print_model_fields(changed_model))


@cli_command("rm", model_commands)
@click.argument("model")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run_delete_model_command(shell: CommandContext, model: str, yes: bool) -> None:
    """Delete a model with all its stored data."""
    client = shell.create_client()
    model_details = client.models.retrieve(model)
    versions = sum(1 for _ in client.versions.list(model))
    if not yes:
        require_user_confirmation(
            f"Delete {model_details.name} with its {versions} versions? This cannot be undone"
        )
    # By id: while a person thinks, a rebase may give the name to another model.
    client.models.delete(model_details.id)
    shell.print_result(
        {"deleted": model_details.id, "name": model_details.name},
        lambda: print_text(make_text_one_line(f"Deleted {model_details.name}.")),
    )


@cli_command("memory", model_commands)
@click.argument("model")
@click.option("--delete", is_flag=True, help="Delete all of them.")
def run_show_or_delete_replay_images_command(
    shell: CommandContext, model: str, delete: bool
) -> None:
    """Show the images that a model retains for replay, or delete them."""
    client = shell.create_client()
    if delete:
        client.memory.delete(model)
    buffer = client.memory.retrieve(model)
    rows: list[tuple[str, Cell]] = [
        ("version", buffer.version),
        ("images", buffer.items),
        ("bytes", format_bytes(buffer.bytes)),
    ]
    shell.print_result(buffer, lambda: print_fields(rows))
