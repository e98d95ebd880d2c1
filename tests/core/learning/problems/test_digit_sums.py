"""A problem that lives in one file learns, is measured, and passes the conformance kit, because it
is registered and for no other reason.
"""

import ast
import itertools
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import conformance
import digit_sums
import pytest
import torch
from safetensors.torch import save_file
from streams import Bench
from torch.nn import functional

from core.learning.data.dataset import DataError
from core.learning.evaluation import stored_predictions
from core.learning.methods import registry
from core.learning.problems.registry import PROBLEMS

ROOT = Path(__file__).parents[4]
METHODS = sorted(name for name, method in registry.METHODS.items() if not method.needs_classes)
NAMES = [str(total) for total in range(digit_sums.GREATEST + 1)]
MEANINGLESS = {
    conformance.takes_a_class_that_reappears,
    conformance.resumes_with_balanced_batches,  # of methods that remember images
}
"""Checks about classes."""


# The import has registered it; other tests of the process must not see it.
PROBLEM = PROBLEMS.pop(digit_sums.DigitSums.name)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(PROBLEMS, PROBLEM.name, PROBLEM)


@cache
def load_real_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return real digits, float [N, 8, 8] in 0 … 255, and their values."""
    from sklearn.datasets import load_digits

    pixels, values = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().view(-1, 8, 8) * (255 / 16)
    return images, torch.from_numpy(values).long()


@dataclass
class DigitBench(Bench):
    """Tasks of images of four digits: of 0 to 4 in odd tasks, of 5 to 9 in even ones."""

    problem: str | None = digit_sums.DigitSums.name

    def task_classes(self, number):
        return NAMES

    def dataset(self, number, part):
        path = self.folder / f"sums-{self.size}-{number}-{part}.safetensors"
        if not path.exists():
            images, values = load_real_digits()
            n, of_part = (self.n, 1) if part == "train" else (self.n_held_out, 0)
            low = 5 * ((number - 1) % 2)
            usable = torch.arange(len(values)) % 5 != 0
            usable = (usable == bool(of_part)) & (values >= low) & (values < low + 5)
            generator = torch.Generator().manual_seed(number * 10 + of_part)
            rows = usable.nonzero().squeeze(1)
            rows = rows[torch.randint(0, len(rows), (n, 4), generator=generator)]
            square = images[rows].view(n, 2, 2, 8, 8).permute(0, 1, 3, 2, 4).reshape(n, 1, 16, 16)
            small = functional.adaptive_avg_pool2d(square, self.size).round()
            pixels = small.to(torch.uint8).permute(0, 2, 3, 1).contiguous()
            save_file({"images": pixels, "labels": values[rows].sum(1)}, path)
        return path


class DigitCase(conformance.Case):
    def new_bench(self, family="mlp", classes=None, **settings):
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        return DigitBench(folder, self.scenario, self.architecture(family), **settings)


@pytest.fixture(scope="module")
def digit_case_of(tmp_path_factory):
    server = conformance.ForkServer()

    @cache
    def make_digit_case(name, scenario):
        folder = tmp_path_factory.mktemp("case")
        return DigitCase(name, scenario, folder, server, digit_sums.__file__)

    yield make_digit_case
    server.close()


@pytest.fixture
def finetuned_alone(monkeypatch):
    """Plain fine-tuning of this problem, not of classes."""
    monkeypatch.setattr(conformance, "_finetuned", {})


CHECKS = [
    pytest.param(
        check,
        id=check.__name__,
        marks=pytest.mark.campaign if "processes_of_its_own" in check.__name__ else (),
    )
    for check in conformance.CHECKS
    if check not in MEANINGLESS
]


@pytest.mark.usefixtures("finetuned_alone")
@pytest.mark.parametrize(
    "name",
    [
        # The others store less, or nothing.
        pytest.param(name, marks=() if name == "si" else pytest.mark.campaign)
        for name in METHODS
    ],
)
@pytest.mark.parametrize("check", CHECKS)
def test_its_methods_pass_the_conformance_kit(check, name, digit_case_of) -> None:
    check(digit_case_of(name, "class"))


def make_learnable_bench(tmp_path: Path, scenario: str = "class") -> DigitBench:
    bench = DigitBench(tmp_path, scenario, {"name": "mlp", "hidden": [64]}, size=16)
    bench.n, bench.n_held_out = 600, 150
    bench.recipe = {"epochs": 15, "batch_size": 16, "augment": "none"}
    return bench


@pytest.mark.parametrize("scenario", ["class", "data", "task"])
def test_two_tasks_are_learned_and_measured_in_each_scenario(tmp_path: Path, scenario) -> None:
    first, second = make_learnable_bench(tmp_path, scenario).learn_tasks(2, method="finetune")
    learned = [
        first.cell("new", 1)["measure"],
        second.cell("new", 2)["measure"],
        second.cell("new", 1)["measure"],
    ]
    assert all(0 <= value <= 1 for value in learned)
    # Sums of the first task have a mean of 8, those of the second of 28.
    assert learned[0] > 0.85
    assert learned[1] > 0.8
    outputs = second.result["heads"] if scenario == "task" else second.result["classes"]
    expected = [{"task": t, "classes": ["sum"]} for t in (1, 2)] if scenario == "task" else ["sum"]
    assert outputs == expected
    if scenario != "task":  # version 1 on sums that it has never seen, and what fine-tuning forgets
        assert second.cell("parent", 2)["measure"] < learned[1] - 0.1
        assert learned[2] < learned[0] - 0.1
        assert second.result["changes"]["1"]["regressed"] > 0


def test_what_is_of_classes_is_not_measured(tmp_path: Path) -> None:
    learned = make_learnable_bench(tmp_path).stream(
        2, method="finetune", data_report="warn", epochs=1
    )
    for name in ("knn_probe", "baseline_ncm", "baseline_lda", "calibration", "temperature"):
        assert learned.result.get(name) is None, name
    assert all(cell["per_class"] == {} for cell in learned.result["results"])
    said = "\n".join(learned.logged())
    assert "Closeness of the new version: task 1 0." in said
    assert "class" not in said
    assert "accuracy" not in said.lower()
    assert not learned.result["warnings"]


def test_the_deployed_state_is_chosen_by_the_primary_measure(tmp_path: Path) -> None:
    bench = make_learnable_bench(tmp_path)
    learned = bench.learn_task(1, method="finetune", validation=0.2, anytime=True, epochs=2)
    validated = learned.metric("validation_closeness")
    assert all(0 <= value <= 1 for value in validated)
    (step,) = learned.metric("deployed_step")
    steps = [e["step"] for e in learned.events if e.get("name") == "validation_closeness"]
    assert step == steps[validated.index(max(validated))]


def test_merging_within_a_loss_reads_the_primary_measure(tmp_path: Path) -> None:
    bench = make_learnable_bench(tmp_path)
    first = bench.learn_task(1, method="finetune")
    second = bench.learn_task(
        2, first, method="finetune", validation=0.2, merge={"within": 0.05}, epochs=3
    )
    assert any("validation closeness is within 0.05 of the best" in e for e in second.logged())


def test_predictions_are_stored_and_rendered(tmp_path: Path) -> None:
    problem = PROBLEM
    learned = make_learnable_bench(tmp_path).learn_task(1, method="finetune")
    (said,) = (a for a in learned.result["answers"] if a["version"] == "new")
    data = (learned.folder / said["file"]).read_bytes()[said["begin"] : said["end"]]
    stored = stored_predictions.parse_stored_predictions(data, problem)
    assert len(stored) == 150
    scores = problem.score(stored, stored.targets)
    assert problem.measure(scores) == learned.cell("new", 1)["measure"]
    assert int(problem.mask_right_scores(scores).sum()) == learned.cell("new", 1)["correct"]
    pictures = problem.render(stored, ["sum"])
    assert [picture["sum"] for picture in pictures] == stored.values.tolist()
    assert all(set(p) == set(problem.response_schema()["required"]) for p in pictures)


def test_other_methods_say_that_they_are_of_classes(tmp_path: Path) -> None:
    bench = make_learnable_bench(tmp_path)
    refused = sorted(set(registry.METHODS) - set(METHODS))
    assert refused
    for name in refused:
        assert PROBLEM.explain_unsupported_method(registry.get_method(name))
        assert (
            PROBLEMS["classification"].explain_unsupported_method(registry.get_method(name)) == ""
        )
    with pytest.raises(DataError, match="lwf does not learn digit-sums: its loss or its memory"):
        bench.learn_task(1, method="lwf")


def test_labels_of_another_kind_are_refused(tmp_path: Path) -> None:
    bench = make_learnable_bench(tmp_path)
    spec = bench.spec(1, None, method="finetune")
    spec["task"]["classes"] = ["ant", *NAMES[1:]]
    with pytest.raises(DataError, match="'ant' is no sum of four digits"):
        bench.learn(spec)


def test_an_unknown_problem_is_refused(tmp_path: Path) -> None:
    bench = make_learnable_bench(tmp_path)
    bench.task_classes = lambda number: NAMES
    spec = {**bench.spec(1, None, method="finetune"), "problem": "poetry"}
    with pytest.raises(DataError, match="unknown problem 'poetry'; known: classification, digit-"):
        bench.learn(spec)


def test_the_engine_names_no_problem_of_its_own() -> None:
    """Only the registry, and defaults of older documents and calls, name classification."""
    naming = []
    for path in sorted((ROOT / "core/learning").rglob("*.py")):
        text = path.read_text()
        if path.parent.name == "problems" or "Classification" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                naming += [path.name for alias in node.names if alias.name == "Classification"]
    assert naming == []


def test_every_problem_is_complete() -> None:
    for problem, method in itertools.product(PROBLEMS.values(), registry.METHODS.values()):
        assert isinstance(problem.explain_unsupported_method(method), str)
        assert problem.explain_unsupported_optimizer("sgd") == ""
    for name, problem in PROBLEMS.items():
        assert problem.name == name
        assert problem.description.endswith(".") and problem.source
        assert problem.primary_measure.definition.endswith(".")
        assert problem.response_schema()["type"] == "object"
