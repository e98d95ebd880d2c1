"""Batches in slices: on one process in turn, and on two ranks of gloo, in the same bits."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from streams import Bench, Learned

from core.errors import InvalidRecipe
from core.learning.data.dataset import DataError
from core.learning.distributed.ranks import EXIT_RANK_LOST
from core.learning.distributed.slices import (
    BatchSlice,
    choose_slice_process_count,
    count_batch_slices,
)
from core.learning.methods import registry

SHARDABLE = sorted(name for name, method in registry.METHODS.items() if not method.no_shards)
OFTEN = {"finetune", "er", "der++"}
"""Each run of CI takes these: no memory, one loss over batch and memory, logits that are gathered.
"""
ON_RANKS = {"der++"}
"""The same on several processes."""


class RankServer:
    """Runs a spec on several ranks, each in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parents[1] / "kit" / "rank_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        )

    def run(
        self,
        spec: dict[str, Any],
        ranks: int = 2,
        snapshot_at: tuple[int, ...] = (),
        kill: tuple[int, int] | None = None,
    ) -> tuple[Learned, list[int]]:
        """Return what rank 0 left behind, and the exit statuses. kill: a rank, and the step in
        which it is killed.
        """
        out = Path(spec["out"])
        out.mkdir(parents=True, exist_ok=True)
        model = {key: spec[key] for key in ("architecture", "image", "scenario")}
        versions = {
            name: {**spec[name], "manifest": {**model, **spec[name]["manifest"]}}
            for name in ("parent", "base")
        }
        (out / "spec.json").write_text(json.dumps({**spec, **versions}))
        request = {
            "spec": str(out / "spec.json"),
            "ranks": ranks,
            "snapshot_at": snapshot_at,
            "kill": kill,
        }
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return Learned(spec, found["events"], out / "result"), found["statuses"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankServer]:
    server = RankServer()
    yield server
    server.close()


def list_shardable_methods(names: set[str]) -> list[object]:
    """List all methods that take slices. Only the campaign takes those that are not named here."""
    return [pytest.param(n, marks=() if n in names else pytest.mark.campaign) for n in SHARDABLE]


def list_shardable_cases(first: str, *others: str) -> list[object]:
    """List the methods that take slices with the scenarios in which they work. Only the campaign
    takes `others`.
    """
    return [
        pytest.param(
            name,
            scenario,
            marks=() if name in OFTEN and scenario == first else pytest.mark.campaign,
        )
        for name in SHARDABLE
        for scenario in (first, *others)
        if scenario in registry.get_method(name).scenarios
    ]


def choose_architecture(name: str) -> dict[str, Any]:
    if name != "vpt":
        return {"name": "mlp", "hidden": [12]}
    return {"name": "vit", "layers": 2, "heads": 2, "hidden": 8, "mlp": 16, "patch": 3}


@pytest.fixture(scope="module")
def streams_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Method → its bench, and its two tasks learned in two slices by one process."""

    @cache
    def learn_two_tasks(name: str) -> tuple[Bench, list[Learned]]:
        bench = Bench(tmp_path_factory.mktemp("shards"), architecture=choose_architecture(name))
        bench.recipe = {"method": name, "shards": 2}
        return bench, bench.learn_tasks(2)

    return learn_two_tasks


@pytest.mark.parametrize(
    ("of", "count", "sizes"),
    [(1, 5, [5]), (2, 5, [3, 2]), (3, 5, [2, 2, 1]), (3, 2, [1, 1, 0]), (4, 0, [0] * 4)],
)
def test_slices_are_contiguous_and_cover_every_row_once(
    of: int, count: int, sizes: list[int]
) -> None:
    slices = [BatchSlice(number, of, 8) for number in range(of)]
    assert [part.count_slice_rows(count) for part in slices] == sizes
    assert [row for part in slices for row in range(count)[part.get_row_range(count)]] == list(
        range(count)
    )
    assert sum(
        part.loss_weight * part.compute_mean_correction(part.count_slice_rows(5), 5)
        for part in slices
    ) == pytest.approx(1)


@pytest.mark.parametrize(("shards", "images", "slices"), [(1, 9, 1), (4, 4, 4), (4, 3, 1)])
def test_a_batch_of_fewer_images_than_shards_is_not_cut(
    shards: int, images: int, slices: int
) -> None:
    assert count_batch_slices(shards, images) == slices


@pytest.mark.parametrize(
    ("shards", "devices", "ranks"),
    [(1, 8, 1), (2, 1, 1), (2, 2, 2), (6, 4, 3), (4, 3, 2), (5, 4, 1), (2, 0, 1)],
)
def test_the_ranks_are_the_most_that_divide_the_shards(
    shards: int, devices: int, ranks: int
) -> None:
    assert choose_slice_process_count(shards, devices) == ranks


@pytest.mark.parametrize(("name", "scenario"), list_shardable_cases("class", "task"))
def test_slices_learn_what_the_whole_batch_learns_up_to_rounding(
    name: str, scenario: str, tmp_path: Path
) -> None:
    classes = (("ant", "bee", "cat"), ("dog", "elk"))  # heads of different sizes
    bench = Bench(tmp_path, scenario, choose_architecture(name), classes=classes)
    whole, cut = (bench.stream(2, method=name, augment="none", shards=n) for n in (1, 3))
    for key, tensor in whole.weights.items():
        torch.testing.assert_close(cut.weights[key], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", list_shardable_methods(ON_RANKS))
def test_two_ranks_give_the_bits_of_one_process_and_do_so_twice(
    name: str, streams_of: Any, ranks: RankServer
) -> None:
    bench, (first, second) = streams_of(name)
    for number, parent, alone in ((1, None, first), (2, first, second), (2, first, second)):
        found, statuses = ranks.run(bench.spec(number, parent))
        assert (found.digests, statuses) == (alone.digests, [0, 0])


def test_ranks_share_slices_of_uneven_sizes_and_batches_too_small_to_cut(
    tmp_path: Path, ranks: RankServer
) -> None:
    bench = Bench(
        tmp_path, n=24, recipe={"method": "der++", "shards": 4, "batch_size": 7}
    )  # 7, 7, 7, 3 images
    alone = bench.learn_task(1)
    found, statuses = ranks.run(bench.spec(1, None))
    assert (found.digests, statuses) == (alone.digests, [0, 0])


@pytest.mark.parametrize("name", list_shardable_methods(ON_RANKS))
def test_a_run_in_slices_resumes_to_the_same_bits(name: str, streams_of: Any) -> None:
    bench, (first, second) = streams_of(name)
    assert bench.resumed(2, first, 7, 9).digests == second.digests


@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("name", list_shardable_methods(ON_RANKS))
def test_ranks_resume_to_the_same_bits_after_one_was_killed(
    name: str, killed: int, streams_of: Any, ranks: RankServer
) -> None:
    bench, (first, second) = streams_of(name)
    spec = bench.spec(2, first)
    cut, statuses = ranks.run(spec, snapshot_at=(7,), kill=(killed, 9))
    assert statuses == [-9 if rank == killed else EXIT_RANK_LOST for rank in (0, 1)]
    assert [event["event"] for event in cut.events][-1] in ("snapshot", "progress"), (
        "no rank says an error"
    )
    (path,) = [event["path"] for event in cut.events if event["event"] == "snapshot"]
    again, statuses = ranks.run({**spec, "snapshot": path})
    assert (again.digests, statuses) == (second.digests, [0, 0])


@pytest.mark.parametrize("name", sorted(set(registry.METHODS) - set(SHARDABLE)))
def test_a_method_whose_loss_is_no_mean_over_images_refuses_slices(name: str, bench: Bench) -> None:
    bench.scenario = registry.get_method(name).scenarios[0]
    with pytest.raises(
        InvalidRecipe, match=f"2 slices of a batch do not work with {name}: .*; send 1"
    ) as refused:
        bench.spec(1, None, method=name, shards=2)
    assert [error["field"] for error in refused.value.fields] == ["recipe.shards"]


def test_a_first_task_from_random_weights_refuses_slices_where_there_is_batch_norm(
    deep: Bench,
) -> None:
    with pytest.raises(DataError, match=r"recipe\.shards is 2, and the network has BatchNorm"):
        deep.learn_task(1, shards=2)


def test_a_later_task_of_a_network_with_batch_norm_takes_slices(deep: Bench) -> None:
    first = deep.learn_task(1, method="finetune", epochs=1)
    second = deep.learn_task(2, first, method="finetune", epochs=1, shards=2)
    assert any(
        "cut into 2 slices, computed one after the other" in line for line in second.logged()
    )
