"""Features that the gate takes for collapsed in streams that learn normally, and what wrecked
features lose.

    python -m bench.research.feature_collapse [--seeds 3]

Five tasks of two digits, class scenario, small-cnn from random weights, through HTTP. A row is a
method: versions whose features were compared, those that the limit of a new model holds, and the
largest loss beside an ancestor. `absurd` is fine-tuning of the last batch at a rate of 300, after
replay. No version is held here, so that each stream goes on.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perennial import Perennial
from tools import digits, service

METHODS: Mapping[str, Any] = {
    "er": {"name": "er", "buffer": 200},
    "er-ace": {"name": "er-ace", "buffer": 200},
    "der++": {"name": "der++", "buffer": 200},
    "lwf": {"name": "lwf"},
    "finetune": {"name": "finetune"},
}
ABSURD: Mapping[str, Any] = {
    "method": {"name": "finetune"},
    "optimizer": {"lr": 300.0, "clip": 1.0},
}


def main() -> None:
    """Measure the loss of feature quality by each method, and how many versions the gate would
    hold.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print("| method | versions | held | largest loss |")
    print("| --- | ---: | ---: | ---: |")
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        for name, method in METHODS.items():
            losses = [
                loss
                for seed in range(seeds)
                for loss in _measure_feature_collapse_of_stream(client, name, method, seed)
            ]
            _print_feature_collapse_row(name, losses)
        _print_feature_collapse_row(
            "absurd",
            [_measure_feature_collapse_at_extreme_rate(client, seed) for seed in range(seeds)],
        )


def _create_model(client: Perennial, model: str, method: Any, seed: int) -> str:
    # With a limit of 1 no version is held, and the check says its figure; the warning has the limit
    # of a new model.
    client.models.create(
        model,
        recipe={"method": method, "seed": seed},
        architecture="small-cnn",
        base="random",
        image={"size": 32, "channels": 1},
        gate={"checks": "off", "features_collapsed": 1.0},
    )
    return model


def _measure_feature_collapse_of_stream(
    client: Perennial, name: str, method: Any, seed: int
) -> Iterator[tuple[float, bool]]:
    """Learn a stream; yield each version's feature loss and whether the default limit would hold
    it.
    """
    model = _create_model(client, f"{name.replace('+', 'p')}-{seed}", method, seed)
    for _, archive in digits.build_digit_archives():
        job = client.submit(model, archive).wait()
        collapse = _read_feature_collapse(client, model, job.version)
        if collapse is not None:
            yield collapse


def _measure_feature_collapse_at_extreme_rate(client: Perennial, seed: int) -> tuple[float, bool]:
    model = _create_model(client, f"absurd-{seed}", METHODS["er"], seed)
    archives = [archive for _, archive in digits.build_digit_archives()]
    for archive in archives[:-1]:
        client.submit(model, archive).wait()
    collapse = _read_feature_collapse(
        client, model, client.submit(model, archives[-1], recipe=ABSURD).wait().version
    )
    assert collapse is not None, "a fifth version has ancestors"
    return collapse


def _read_feature_collapse(
    client: Perennial, model: str, number: int | None
) -> tuple[float, bool] | None:
    assert number is not None, "the job made a version"
    version = client.versions.retrieve(model, number)
    check = next(one for one in version.gate.checks if one.name == "features_collapsed")
    if check.value is None:
        return None
    return check.value, any("have collapsed" in text for text in version.warnings)


def _print_feature_collapse_row(name: str, collapses: list[tuple[float, bool]]) -> None:
    held_count = sum(is_held for _, is_held in collapses)
    print(
        f"| {name} | {len(collapses)} | {held_count} | {max(loss for loss, _ in collapses):.3f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
