"""A version's features beside those of its ancestors: what is compared, what is not and why, from
stored figures.
"""

from typing import Any

import pytest

from core.contract.features import AncestorFeatureComparison
from core.database.measurements import FEATURES
from core.database.tables import Model, Version, VersionMeasurement
from core.lineage.checks import NEW_GATE
from tests.core.desk import Desk

Counts = dict[int, tuple[int, int]]


class Line:
    """Versions of a model that say how many images of each task a linear discriminant on their
    features gets right.
    """

    def __init__(self, desk: Desk, **values: Any) -> None:
        self.desk = desk
        self.model = desk.model(**{"gate": NEW_GATE, **values})

    def learn(
        self, right: Counts | None, later: Any = None, recipe: Any = None, **more: Any
    ) -> AncestorFeatureComparison:
        """Publish the next version, with two more classes; what was counted of its features."""
        values = {} if recipe is None else {"recipe": recipe}
        _, claim = self.desk.begin(self.model, **values)
        task = claim.task_number or 0
        baseline = None
        if right is not None:
            everything = [sum(pair[i] for pair in right.values()) for i in (0, 1)]
            tasks = {str(number): list(pair) for number, pair in right.items()}
            baseline = {"all": everything, "own": everything, "tasks": tasks}
        if later is None:
            later = {str(number): {} for number in right or {}}
        classes = [f"{number}{letter}" for number in range(1, task + 1) for letter in "ab"]
        cells = [("new", number, 1, 2) for number in range(1, task + 1)]
        figures = {"classes": classes, "baseline_lda": baseline, "baseline_later": later}
        published = self.desk.publish(
            {"head": f"h{task}"}, cells, claim=claim, **{**figures, **more}
        )
        return self.counted(published.number)

    def counted(self, version: int) -> AncestorFeatureComparison:
        (row,) = self.desk.all(
            VersionMeasurement, model_id=self.model, version=version, name=FEATURES
        )
        found: AncestorFeatureComparison = row.detail
        return found

    def version(self, number: int) -> Version:
        (row,) = self.desk.all(Version, model_id=self.model, number=number)
        found: Version = row
        return found

    def check(self, number: int) -> Any:
        """The check of its gate."""
        checks = self.version(number).gate["checks"]
        return next(one for one in checks if one["name"] == "features_collapsed")


@pytest.fixture
def line(desk: Desk) -> Line:
    return Line(desk)


def test_features_are_compared_on_the_tasks_that_both_measured(line: Line) -> None:
    line.learn({1: (40, 50)})
    line.learn({1: (40, 50), 2: (30, 50)})
    counted = line.learn({1: (20, 50), 2: (25, 50), 3: (50, 50)})
    shares = {one["version"]: one for one in counted["ancestors"]}
    assert list(shares) == [2, 1]
    assert (shares[2]["right"], shares[2]["images"]) == (45, 100)
    assert (shares[2]["right_before"], shares[2]["images_before"]) == (70, 100)
    assert (shares[1]["right"], shares[1]["right_before"]) == (20, 40)


def test_only_the_classes_that_the_ancestor_knows_may_be_answered(line: Line) -> None:
    line.learn({1: (40, 50)})
    line.learn({1: (36, 50), 2: (40, 50)}, later={"1": {"2": 3, "3": 1}, "2": {}})
    counted = line.learn(
        {1: (25, 50), 2: (30, 50), 3: (50, 50)},
        later={"1": {"3": 6, "4": 7}, "2": {"5": 8}, "3": {}},
    )
    shares = {one["version"]: one for one in counted["ancestors"]}
    assert shares[1]["right"] == 25 + 6 + 7
    assert shares[2]["right"] == 25 + 7 + 30 + 8
    assert line.version(3).status == "published"


@pytest.mark.parametrize("scenario", ["task", "data"])
def test_without_growing_classes_counts_are_compared_as_they_are(desk: Desk, scenario: str) -> None:
    line = Line(desk, scenario=scenario, classes=["1a", "1b"])
    heads = (
        [{"task": n, "classes": [f"{n}a", f"{n}b"]} for n in (1, 2)] if scenario == "task" else []
    )
    line.learn({1: (40, 50)}, heads=heads[:1], classes=["1a", "1b"])
    counted = line.learn({1: (20, 50), 2: (40, 50)}, later={}, heads=heads, classes=["1a", "1b"])
    assert [one["right"] for one in counted["ancestors"]] == [20]


def test_a_version_that_collapsed_is_held_and_the_last_good_one_named(line: Line) -> None:
    line.learn({1: (48, 50)})
    line.learn({1: (47, 50), 2: (45, 50)})
    line.learn({1: (15, 50), 2: (17, 50), 3: (20, 50)})
    held = line.version(3)
    assert held.status == "held" and line.version(2).status == "published"
    assert [check["name"] for check in held.gate["checks"] if not check["passed"]] == [
        "features_collapsed"
    ]
    check = line.check(3)
    assert (check["against"], check["images"], check["value"]) == (2, 100, pytest.approx(0.6))
    assert check["detail"] == (
        "Its features have collapsed: a linear discriminant on them gets 32 % of 100 held-out "
        "images of earlier tasks right, on those of version 2, the last good version, 92 % of 100, "
        "among the classes that both know."
    )


def test_a_version_on_another_branch_is_no_ancestor(line: Line) -> None:
    line.learn({1: (30, 50)})
    line.learn({1: (49, 50), 2: (49, 50)})
    line.desk.roll_back(line.model, to=1)
    counted = line.learn({1: (29, 50), 3: (40, 50)}, classes=["1a", "1b", "3a", "3b"])
    assert [one["version"] for one in counted["ancestors"]] == [1]
    assert line.check(3)["passed"]


def test_ancestors_are_looked_at_up_to_the_last_published_ones(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.publishing.features.LAST_VERSIONS", 2)
    for right in (49, 20, 20):
        line.desk.change(Model, line.model, gate={})
        line.learn({1: (right, 50)})
    line.desk.change(Model, line.model, gate=NEW_GATE)
    counted = line.learn({1: (20, 50)})
    assert [one["version"] for one in counted["ancestors"]] == [3, 2]
    assert line.check(4)["passed"]


@pytest.mark.parametrize(
    ("first", "second", "more", "why"),
    [
        (None, {1: (9, 50)}, {}, "the features of no version before it were measured"),
        ({1: (48, 50)}, None, {}, "the features of the version were not measured"),
        ({1: (18, 19)}, {1: (1, 19)}, {}, "no version before it was measured on 20 held-out "
            "images"),
        ({1: (48, 50)}, {2: (9, 50)}, {}, "no version before it was measured on 20 held-out "
            "images"),
        ({1: (48, 50)}, {1: (9, 50)}, {"baseline_later": None}, "no version before it was measured "
            "on 20"),
        ({1: (48, 50)}, {1: (9, 50)}, {"recipe": {"method": {"name": "lwf"}, "depth": 1}}, "leaves the features as"),
    ],
    ids=("no ancestor", "not the version", "few", "other tasks", "not among fewer "
        "classes", "frozen"),
)  # fmt: skip
def test_what_cannot_be_compared_passes_and_says_why(
    line: Line, first: Counts | None, second: Counts | None, more: Any, why: str
) -> None:
    line.learn(first)
    line.learn(second, **more)
    check = line.check(2)
    assert check["passed"] and check["value"] is None and why in check["not_measured"]
    assert line.version(2).status == "published"


def test_a_first_version_has_nothing_before_it(line: Line) -> None:
    counted = line.learn({1: (9, 50)})
    assert counted == {"ancestors": [], "missing": "it is the first version of its line"}


def test_an_ancestor_that_had_collapsed_is_not_the_last_good_one(line: Line) -> None:
    line.desk.change(Model, line.model, gate={})
    line.learn({1: (48, 50)})
    line.learn({1: (30, 50)})
    counted = line.learn({1: (10, 50)})
    assert [(one["version"], one["is_good"]) for one in counted["ancestors"]] == [
        (2, False),
        (1, True),
    ]
