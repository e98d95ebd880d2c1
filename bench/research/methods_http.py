"""Every registered method on the digits, through HTTP: what each last version still knows of each
task.

    python -m bench.research.methods_http [--epochs 10] [--tasks 5] [--threads 0]

One model per method of `GET /v1/methods`, on the demo's stream of two new digits per task and with
the demo's recipe, in the class scenario where the method accepts it: there methods differ most.
Networks are small-cnn on 16 pixels, or the smallest of the family that a method asks for. The table
is Markdown; it takes some minutes on two cores. Below it are the whole accuracy matrices, and what
the service says about a weak combination, an impossible one, and a change of method in mid-life.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perennial import Invalid, Perennial, types
from tools import digits, service

Json = dict[str, Any]
IMAGE = {"size": 16, "channels": 1}
"""The digits have 8 × 8 grey pixels: larger images take longer and show no more."""
MEMORY = {"buffer": 200, "exemplars": 200, "memory": 40}
"""Images kept, as in the demo: 200 in all, or 40 of each of five tasks."""
SCENARIOS = ("class", "task", "data")
"""In the order of preference."""
SMALLEST: dict[str, Json] = {
    "vit": {"name": "vit", "layers": 2, "heads": 2, "hidden": 32, "mlp": 64},
    "resnet": {"name": "resnet18"},
    "convnext": {"name": "convnext_tiny"},
    "small-resnet": {"name": "resnet20"},
    "mlp": {"name": "mlp"},
    "dne": {"name": "dne", "layers": 3, "head_dim": 8, "heads": 4, "patch": 2},
}
"""What stands for a family of networks where a method does not work on the usual one."""
SLOW: dict[str, Json] = {
    "dne": {"epochs": 20, "optimizer": {"name": "adamw", "lr": 0.003, "weight_decay": 1e-6}}
}
"""Recipes of methods whose network, a transformer from random weights, learns little in the usual
time.
"""


def main() -> None:
    """Learn a stream of digits with each method over HTTP, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument(
        "--threads", type=int, default=0, help="per job (default: the service's own choice)"
    )
    options = parser.parse_args()
    environment = {"PERENNIAL_THREADS": str(options.threads)} if options.threads else {}
    start_time = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder), environment) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        recipe = {"epochs": options.epochs}
        results = learn_with_all_methods(
            client, client.methods.list().items, tasks=options.tasks, recipe=recipe
        )
        seconds = time.monotonic() - start_time
        bad_settings_report = render_responses_to_bad_settings(client, recipe=recipe)
    print(
        render_method_accuracy_table(results),
        render_accuracy_matrices(results),
        bad_settings_report,
        sep="\n\n",
    )
    print(f"\n{len(results)} methods in {seconds:.0f} s")


def learn_with_all_methods(
    client: Perennial,
    methods: Sequence[types.Method],
    *,
    tasks: int,
    recipe: Json,
    usual: str | Json = "small-cnn",
) -> list[tuple[types.Model, types.Metrics]]:
    """Learn the first `tasks` tasks of the stream with each method; return model and metrics.

    Args:
        methods: of the catalogue.
        recipe: over the defaults, for all methods.
        usual: the architecture of methods that work on it.

    Raises:
        JobEnded: a job did not end with a published version.
    """
    batches = digits.build_digit_archives()[:tasks]
    families = {one.name: one.family for one in client.architectures.list()}
    models, jobs = [], []
    for entry in methods:
        model = client.models.create(**build_model_request(entry, families, recipe, usual))
        models.append(model)
        jobs += [client.submit(model.name, archive, name=name) for name, archive in batches]
    for job in jobs:
        job.wait()
    return [(model, client.metrics.retrieve(model.name)) for model in models]


def build_model_request(
    entry: types.Method, families: dict[str, str], recipe: Json, usual: str | Json
) -> Json:
    """Build the request for a model that learns the digits with a method of the catalogue."""
    scenario = next(s for s in SCENARIOS if s in entry.scenarios)
    accepted = entry.accepts.architectures
    name = usual if isinstance(usual, str) else usual["name"]
    memory = {key: size for key, size in MEMORY.items() if key in entry.defaults}
    return {
        "name": entry.name.replace("+", "p"),
        "scenario": scenario,
        "architecture": usual
        if not accepted or families[name] in accepted
        else SMALLEST[accepted[0]],
        "image": IMAGE,
        "classes": [str(digit) for digit in range(10)] if scenario == "data" else None,
        "recipe": {**recipe, **SLOW.get(entry.name, {}), "method": {"name": entry.name, **memory}},
        "gate": {"checks": "off"},
    }


def render_method_accuracy_table(results: list[tuple[types.Model, types.Metrics]]) -> str:
    """Render a summary table: last row of each accuracy matrix, and its figures."""
    columns = max(len(metrics.columns) for _, metrics in results)
    tasks = [f"task {n + 1}" for n in range(columns)]
    lines = [
        f"| method | scenario | network | {' | '.join(tasks)} | ACC | BWT | forgetting | k-NN |",
        f"|---|---|---|{'---:|' * (columns + 4)}",
    ]
    for model, metrics in results:
        figures = metrics.summary
        probe = figures.knn_probe.accuracy if figures.knn_probe else None
        cells = [
            *metrics.accuracy_matrix[-1],
            figures.acc,
            figures.bwt,
            figures.forgetting,
            probe,
        ]
        named = [_get_method_of_model(model), model.scenario, model.architecture.name]
        lines.append(f"| {' | '.join([*named, *(_format_number(cell) for cell in cells)])} |")
    return "\n".join(lines)


def render_accuracy_matrices(results: list[tuple[types.Model, types.Metrics]]) -> str:
    """Render the accuracy matrix of every method in Markdown."""
    tasks = [column.task for column in max((metrics.columns for _, metrics in results), key=len)]
    lines = [
        f"| R of | version | {' | '.join(f'task {task}' for task in tasks)} |",
        f"|---|---:|{'---:|' * len(tasks)}",
    ]
    for model, metrics in results:
        for row, cells in zip(metrics.rows, metrics.accuracy_matrix, strict=True):
            named = [_get_method_of_model(model), str(row.version)]
            lines.append(f"| {' | '.join([*named, *(_format_number(cell) for cell in cells)])} |")
    return "\n".join(lines)


def render_responses_to_bad_settings(
    client: Perennial, *, recipe: Json, usual: str | Json = "small-cnn"
) -> str:
    """Render the service's responses to weak and impossible settings, in Markdown.

    Args:
        recipe, usual: as for `learn_with_all_methods`.

    Raises:
        RuntimeError: an answer is not the expected one.
    """
    weak = client.models.create(
        "weak",
        scenario="class",
        image=IMAGE,
        recipe={**recipe, "method": "si"},
        architecture="small-cnn",
    )
    if not weak.warnings:
        raise RuntimeError("SI in the class scenario was accepted without a warning")
    body: Json = {"name": "impossible", "scenario": "data", "recipe": {"method": "icarl"}}
    try:
        client.models.create(**body)
    except Invalid as error:
        refused = error
    else:
        raise RuntimeError("iCaRL in the data scenario was accepted")
    lines = [
        f"- weak, accepted: {'; '.join(weak.warnings)}",
        f"- impossible, {refused.status}: {refused.detail}",
    ]
    client.models.create(
        "midlife",
        architecture=usual,
        image=IMAGE,
        recipe={**recipe, "method": "ewc-online"},
        gate={"checks": "off"},
    )
    for (name, archive), method in zip(
        digits.build_digit_archives(), ("ewc-online", "er"), strict=False
    ):
        client.submit("midlife", archive, name=name, recipe={"method": method}).wait()
    changed = [w for w in client.tasks.retrieve("midlife", 2).warnings if "method changes" in w]
    if not changed:
        raise RuntimeError("the method changed from ewc-online to er without a warning")
    rows = client.metrics.retrieve("midlife").accuracy_matrix
    shown = "; ".join(", ".join(_format_number(cell) for cell in row) for row in rows)
    return "\n".join([*lines, f"- in mid-life, accepted: {changed[0]} R by version: {shown}"])


def _get_method_of_model(model: types.Model) -> str:
    return model.recipe.method.name if model.recipe.method else "–"


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
