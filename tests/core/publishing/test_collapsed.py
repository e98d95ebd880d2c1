"""The warning of a version whose features have collapsed: it names both figures and what to go on
from.
"""

import json

import pytest

from core.database.tables import Model
from tests.core.desk import Desk
from tests.core.publishing.test_features import Line


def list_collapse_warnings(line: Line, number: int) -> list[str]:
    return [
        text for text in line.version(number).warnings if text.startswith("The features of version")
    ]


def collapse_features(line: Line) -> str:
    """Learn a version whose features have collapsed after a good one, and return its warning."""
    line.learn({1: (48, 50)})
    line.learn({1: (15, 50), 2: (20, 50)})
    (text,) = list_collapse_warnings(line, 2)
    return text


@pytest.fixture
def ungated(desk: Desk) -> Line:
    return Line(desk, gate={})


def test_a_published_one_is_to_be_rolled_back(ungated: Line) -> None:
    text = collapse_features(ungated)
    name = ungated.desk.all(Model, id=ungated.model)[0].name
    assert text.startswith(
        "The features of version 2 have collapsed: a linear discriminant on them gets 30 % of 50 "
        "held-out images of earlier tasks right, on those of version 1, the last good version, 96 "
        "% of 50. Go on from version 1: roll "
        f"production back to it with POST /v1/models/{name}/aliases/production/rollback "
        '{"version": 1, "reason": "…"}.'
    )


def test_a_held_one_leaves_the_good_one_in_production(desk: Desk) -> None:
    line = Line(desk)
    assert (
        "Go on from version 1, which stays in production: discard this batch"
        in collapse_features(line)
    )
    assert desk.aliases(line.model)["production"] == 1


def test_where_production_is_pinned_to_an_older_version_the_good_one_is_promoted(
    desk: Desk,
) -> None:
    ungated = Line(desk, gate={}, allow_lost_classes=True)
    ungated.learn({1: (48, 50)})
    ungated.learn({1: (48, 50)})
    ungated.desk.roll_back(ungated.model, to=1)
    ungated.learn({1: (48, 50)})
    ungated.learn({1: (10, 50)})
    (text,) = list_collapse_warnings(ungated, 4)
    assert "promote it with PUT" in text and '{"version": 3, "reason": "…"}' in text


def test_a_model_on_features_is_advised_from_the_good_version_alone(ungated: Line) -> None:
    text = collapse_features(ungated)
    body = json.loads(
        text[text.index("POST /v1/models {") + len("POST /v1/models ") :].removesuffix(".")
    )
    assert body["base"] == {"model": body["name"].removesuffix("-analytic"), "version": 1}
    knowing = {"all": [150, 150], "own": [9, 150], "tasks": {}}
    ungated.learn({1: (16, 50), 2: (20, 50), 3: (20, 50)}, baseline_ncm=knowing)
    (text,) = list_collapse_warnings(ungated, 3)
    assert "the last good version" in text and '"version": 1' in text and '"version": 3' not in text


def test_features_that_hold_warn_of_nothing(ungated: Line) -> None:
    ungated.learn({1: (48, 50)})
    ungated.learn({1: (45, 50), 2: (20, 50)})
    assert list_collapse_warnings(ungated, 2) == []
