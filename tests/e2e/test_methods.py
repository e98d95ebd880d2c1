"""One method of each family through HTTP (all in the campaign), and what is said about recipes that
do not fit well.
"""

import math
from collections.abc import Iterator

import pytest

from bench.research.methods_http import (
    learn_with_all_methods,
    render_accuracy_matrices,
    render_method_accuracy_table,
    render_responses_to_bad_settings,
)
from perennial import types
from tests.e2e import small
from tests.e2e.small import WEEKS
from tests.rest import Json, Rest
from tools import digits

pytestmark = pytest.mark.slow

MLP = {"name": "mlp", "hidden": [40]}
QUICK = {"epochs": 3, "batch_size": 8, "augment": "none"}
FAMILIES = ("finetune", "er", "icarl", "dlcft", "der-net", "vpt")
"""One method of each way through worker and store: a network alone, with a buffer, with exemplars,
linearised, with a network that grows, and with prompts. test_analytic.py has the closed form; the
conformance kit of `tests/core/learning/kit` runs every method."""
KEEPS_IMAGES = {"er", "er-ace", "der", "derpp", "gem", "a-gem", "icarl", "dlcft", "dne", "der-net"}
Learned = list[tuple[types.Model, types.Metrics]]


@pytest.fixture(scope="module", autouse=True)
def small_batches() -> Iterator[None]:
    """Let the benchmark of all methods use small batches."""
    with pytest.MonkeyPatch.context() as patch:
        named = [(f"digits-{2 * n}-{2 * n + 1}", week) for n, week in enumerate(WEEKS)]
        patch.setattr(digits, "build_digit_archives", lambda: named)
        patch.setattr("bench.research.methods_http.IMAGE", small.IMAGE)
        sizes = {"buffer": 40, "exemplars": 40, "memory": 20, "projection": 100}
        patch.setattr("bench.research.methods_http.MEMORY", sizes)
        yield


@pytest.fixture(
    scope="module", params=["families", pytest.param("all", marks=pytest.mark.campaign)]
)
def chosen(client: Rest, request: pytest.FixtureRequest) -> list[types.Method]:
    """One method of each family, or every method of the service."""
    listed = client.methods.list().items
    return [method for method in listed if request.param == "all" or method.name in FAMILIES]


@pytest.fixture(scope="module")
def learned(client: Rest, small_batches: None, chosen: list[types.Method]) -> Iterator[Learned]:
    """(model, metrics) of each chosen method after two tasks."""
    found = learn_with_all_methods(client, chosen, tasks=2, recipe=QUICK, usual=MLP)
    yield found
    for model, _ in found:
        client.models.delete(model.name)


def learn_week(client: Rest, model: str, week: int, **options: Json) -> Json:
    """Learn a batch and return its task."""
    small.learn_batches(client, model, WEEKS[week - 1], **options)
    return client.get(f"/v1/models/{model}/tasks/{week}")


def test_methods_of_every_family_learn_and_are_measured(
    client: Rest, chosen: list[types.Method], learned: Learned
) -> None:
    print("\n" + render_method_accuracy_table(learned) + "\n\n" + render_accuracy_matrices(learned))
    names = {model.recipe.method.name for model, _ in learned}
    assert names == {method.name for method in chosen} >= set(FAMILIES)
    for model, metrics in learned:
        name, figures = model.name, metrics.summary
        assert all(cell is not None for cell in metrics.accuracy_matrix[2]), name
        assert figures.learning_accuracy > 0.3, name
        assert figures.bwt == pytest.approx(-figures.forgetting), (
            name
        )  # two tasks: the same difference
        assert figures.knn_probe.accuracy > 0.3, name  # of four classes
        if model.recipe.method.name == "dlcft":  # from random weights its first task makes the base
            assert figures.drift[0] == 0 < figures.update_norm[0]
            assert figures.drift[1] == pytest.approx(figures.update_norm[1], rel=1e-5)
            assert (
                figures.predicted_loss_rise[0] is None
                and figures.predicted_loss_rise[1] is not None
            )
            assert figures.measured_loss_rise[1] is not None
        else:
            assert figures.drift[0] == pytest.approx(figures.update_norm[0], rel=1e-5), name
            assert figures.predicted_loss_rise == figures.measured_loss_rise == [None, None], name


def test_a_base_of_random_weights_is_made_by_the_first_task_with_a_warning(
    client: Rest, learned: Learned
) -> None:
    warnings = client.get("/v1/models/dlcft/tasks/1")["warnings"]
    assert any("random weights" in text for text in warnings), warnings
    first, second = client.read_versions("dlcft")[1:]
    frozen = [{p["sha256"] for p in v["parts"] if p["type"] == "backbone"} for v in (first, second)]
    assert frozen[0] == frozen[1] and math.isfinite(second["manifest"]["forecast"]["predicted"])


def test_replay_forgets_less_than_fine_tuning(learned: Learned) -> None:
    lost = {model.name: metrics.summary.forgetting for model, metrics in learned}
    assert max(lost["er"], lost.get("derpp", 0)) < lost["finetune"]


def test_regression_and_improvement_explain_the_change_of_accuracy(
    client: Rest, learned: Learned
) -> None:
    """On the first task, which both versions of each model can answer."""
    for model, metrics in learned:
        figures, matrix = metrics.summary, metrics.accuracy_matrix
        if model.scenario == "data":
            continue
        gained = figures.improvement_rate - figures.regression_rate
        assert gained == pytest.approx(matrix[2][0] - matrix[1][0], abs=1e-9), model.name


def test_a_weak_combination_is_accepted_with_the_reason(learned: Learned) -> None:
    warned = {model.name: model.warnings for model, _ in learned}
    assert any("weak in the class scenario" in text for text in warned["finetune"])
    assert not any("weak" in text for text in warned["er"])


@pytest.mark.campaign  # tests/core/learning/methods/replay/test_replay.py shows it
def test_a_new_method_takes_over_the_buffer_of_the_old_one(client: Rest) -> None:
    small.create_small_model(client, "handover", {"name": "er", "buffer": 30})
    learn_week(client, "handover", 1)
    before = client.get("/v1/models/handover/memory")["parts"][0]
    assert before["items"] == 30 and [t["task"] for t in before["per_task"]] == [1]
    client.models.update("handover", recipe={"method": {"name": "der++", "buffer": 30}})
    warnings = learn_week(client, "handover", 2)["warnings"]
    assert [said for said in warnings if "unprotected" in said or "memory" in said] == []
    after = client.get("/v1/models/handover/memory")["parts"][0]
    assert after["items"] == 30 and {t["task"] for t in after["per_task"]} == {1, 2}


def test_the_memory_of_every_method_is_counted_by_task(client: Rest, learned: Learned) -> None:
    keeping = set()
    for model, _ in learned:
        found = client.get(f"/v1/models/{model.name}/memory")
        for part in found["parts"]:
            if part["type"] in ("buffer", "exemplars"):
                keeping.add(model.name)
                assert {t["task"] for t in part["per_task"]} == {1, 2}, model.name
                assert part["items"] == sum(part["per_class"].values()) > 0, model.name
    assert keeping == KEEPS_IMAGES & {model.name for model, _ in learned}


def test_a_version_stores_the_images_that_its_task_brought_and_shares_the_others(
    client: Rest, learned: Learned
) -> None:
    keeping = set()
    for model, _ in learned:
        parts = client.get(f"/v1/models/{model.name}/versions/2")["parts"]
        packs = {
            p["name"].partition(".")[2]: p["shared_with"] for p in parts if ".images." in p["name"]
        }
        if packs:
            keeping.add(model.name)
            assert packs == {"images.1": 1, "images.2": None}, model.name
    assert keeping == KEEPS_IMAGES & {model.name for model, _ in learned}


@pytest.mark.campaign  # tests/api/routes/test_applicability.py shows what the service says of methods
def test_the_benchmark_shows_what_the_service_says(client: Rest) -> None:
    said = render_responses_to_bad_settings(client, recipe=QUICK, usual=MLP)
    assert "weak in the class scenario" in said and "does not work in the data scenario" in said
    assert "from ewc-online to er: nothing is taken over" in said


# tests/api/routes/test_memory.py and tests/core/learning/training/test_deleted_memory.py have the parts
@pytest.mark.campaign
def test_a_deleted_memory_is_empty_until_the_next_task_fills_it(client: Rest) -> None:
    small.create_small_model(client, "cleared", {"name": "er", "buffer": 30})
    learn_week(client, "cleared", 1)
    client.memory.delete("cleared")
    assert client.get("/v1/models/cleared/memory")["items"] == 0
    task = learn_week(client, "cleared", 2)
    assert any("were deleted" in text for text in task["warnings"])
    part = client.get("/v1/models/cleared/memory")["parts"][0]
    assert [t["task"] for t in part["per_task"]] == [2] and part["items"] == 30
