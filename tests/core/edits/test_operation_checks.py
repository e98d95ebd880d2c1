"""Changes that the operations of an edit make, and operations that are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.edits import EditIn
from core.edits.operation_checks import EditChanges, TaskForEditCheck, check_and_combine_operations
from core.edits.operations import MAX_OPERATIONS, Operation
from core.errors import Invalid, NotFound, PerennialError, WrongState

KNOWN = ["cap", "hat", "tee", "tshirt"]


def make_task(
    number: int, *classes: str, standing: str = "learned", **more: Any
) -> TaskForEditCheck:
    sizes = {"train": 4, "held_out": 2}
    return TaskForEditCheck(number, frozenset(classes), sizes, standing, **more)  # type: ignore[arg-type]


TASKS = {
    1: make_task(1, "cap", "hat"),
    2: make_task(2, "tee", "tshirt", "hat"),
    3: make_task(3, "shoe", standing="held"),
    4: make_task(4, "shoe", standing="rolled_back"),
    5: make_task(5, "cap", is_deleted=True),
}


def check_edit(*operations: dict[str, Any], scenario: str = "class") -> EditChanges:
    read = [Operation.model_validate(one) for one in operations]
    return check_and_combine_operations(read, scenario, TASKS, KNOWN)


def build_relabel(
    number: int = 1, image: int = 0, label: str = "cap", **more: str
) -> dict[str, Any]:
    return {"relabel": {"task": number, "image": image, "label": label, **more}}


def test_operations_on_classes_and_images_are_read_together() -> None:
    found = check_edit(
        {"rename": {"from": "tshirt", "to": "T-shirt"}},
        {"merge": {"from": ["cap", "hat"], "into": "hat"}},
        build_relabel(2, 1, "T-shirt"),
        {"remove": {"task": 1, "image": 1, "part": "held_out"}},
    )
    assert found == EditChanges(
        {"tshirt": "T-shirt", "cap": "hat"},
        {(2, "train"): {1: "T-shirt"}, (1, "held_out"): {1: None}},
    )
    assert found.list_changed_tasks({number: TASKS[number] for number in (1, 2)}) == [1, 2]
    assert found.removes_images


@pytest.mark.parametrize(
    ("operations", "scenario", "error", "said"),
    [
        ([{"rename": {"from": "tee", "to": "tshirt"}}], "class", Invalid, '{"merge": '),
        ([{"rename": {"from": "tee", "to": "tee"}}], "class", Invalid, "this name already"),
        ([{"rename": {"from": "fez", "to": "a"}}], "class", NotFound, "no class 'fez'"),
        ([{"merge": {"from": ["tee"], "into": "tee"}}], "class", Invalid, "into itself"),
        (
            [{"merge": {"from": ["tee", "tee"], "into": "a"}}],
            "class",
            Invalid,
            "names a class twice",
        ),
        (
            [{"rename": {"from": "tee", "to": "x"}}, {"rename": {"from": "hat", "to": "x"}}],
            "class",
            Invalid,
            "merge them instead",
        ),
        (
            [
                {"merge": {"from": ["tee"], "into": "hat"}},
                {"merge": {"from": ["hat"], "into": "tee"}},
            ],
            "class",
            Invalid,
            "Send two edits",
        ),
        ([{"drop": {"class": one}} for one in KNOWN], "class", Invalid, "at least one class"),
        (
            [{"drop": {"class": "tee"}}, {"rename": {"from": "tee", "to": "a"}}],
            "class",
            Invalid,
            "Two operations change the class",
        ),
        (
            [build_relabel(), build_relabel(label="hat")],
            "class",
            Invalid,
            "Two operations change image 0",
        ),
        ([build_relabel(image=4)], "class", NotFound, "4 images, from 0 on"),
        ([build_relabel(image=2, part="held_out")], "class", NotFound, "held-out part"),
        ([build_relabel(9)], "class", NotFound, "no task 9"),
        ([build_relabel(3)], "class", WrongState, "Task 3 is held"),
        ([build_relabel(4)], "class", WrongState, "Task 4 is rolled back"),
        ([build_relabel(5)], "class", NotFound, "was deleted"),
        ([build_relabel(label="fez")], "data", Invalid, "its classes are fixed"),
        ([{"drop": {"class": "tee"}}], "data", Invalid, "fixed"),
        ([build_relabel()], "task", Invalid, "Correct the batch and send it again"),
        ([{"merge": {"from": ["tee", "cap"], "into": "a"}}], "task", Invalid, "one head"),
        ([{"merge": {"from": ["tee", "cap"], "into": "tee"}}], "data", Invalid, "fixed"),
        ([{"drop": {"class": "fez"}}], "class", NotFound, "no class 'fez'"),
    ],
)
def test_operations_that_do_not_fit_are_refused_with_the_reason(
    operations: list[dict[str, Any]], scenario: str, error: type[PerennialError], said: str
) -> None:
    with pytest.raises(error, match=said.replace("{", r"\{")):
        check_edit(*operations, scenario=scenario)


def test_a_task_without_a_class_left_is_dropped_and_sources_are_in_their_order() -> None:
    found = check_edit(
        {"merge": {"from": ["tshirt"], "into": "cap"}},
        {"drop": {"class": "hat"}},
        {"drop": {"class": "tee"}},
    )
    assert found.changes_only_classes and found.list_class_sources(KNOWN) == {"cap": [0, 3]}
    tasks = {1: make_task(1, "hat", "tee"), 2: make_task(2, "hat", "cap")}
    assert found.drop_tasks_left_without_classes(tasks).dropped == {1}
    renamed = check_edit(
        {"rename": {"from": "tee", "to": "T"}}, {"merge": {"from": ["cap"], "into": "hat"}}
    )
    assert renamed.list_class_renames_without_merges(KNOWN) == {"tee": "T"}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"drop": {"class": "cap"}}, {"drop": {"class": "hat"}}], True),
        ([{"drop": {"class": "cap"}}], False),
        ([{"remove": {"task": 1, "image": image}} for image in range(4)], True),
        ([{"remove": {"task": 1, "image": image}} for image in range(3)], False),
        (
            [{"drop": {"class": "cap"}}, {"drop": {"class": "hat"}}, build_relabel(1, 0, "tee")],
            False,
        ),
        ([{"remove": {"task": 1}}], False),
    ],
)
def test_a_task_that_would_have_no_training_image_is_known_before_the_edit_is_made(
    operations: list[dict[str, Any]], expected: bool
) -> None:
    changes = check_edit(*operations)
    assert changes.leaves_task_without_images(TASKS[1]) is expected
    held_out_only = TaskForEditCheck(1, TASKS[1].classes, {"held_out": 2}, "learned")
    assert not changes.leaves_task_without_images(held_out_only)


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [{}],
        [{"rename": {"from": "a", "to": "b"}, "drop": {"class": "c"}}],
        [{"rename": {"from": "a", "to": ""}}],
        [{"rename": {"from": "a", "to": "b" * 101}}],
        [{"rename": {"from": "a", "to": "b\nc"}}],
        [{"rename": {"from": "a", "to": "b\u202ec"}}],
        [{"relabel": {"task": 1, "image": -1, "label": "a"}}],
        [{"remove": {}}],
        [{"remove": {"image": 1}}],
        [{"remove": {"task": 1, "image": 1, "name": "*.jpg"}}],
        [{"drop": {"class": "a", "task": 1}}],
        [{"drop": {"class": "a"}}] * (MAX_OPERATIONS + 1),
    ],
)
def test_a_body_of_another_form_is_refused(operations: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError):
        EditIn.model_validate({"operations": operations})
