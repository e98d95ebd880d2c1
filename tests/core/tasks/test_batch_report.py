"""Report on a batch's classes and files at its submission, on both databases."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.database.jobs import change_job_state, lock_job
from core.database.states import JobAction
from core.database.tables import Model
from core.errors import LabelsInvalid
from core.ingest.inspect import ArchiveSummary
from core.tasks import batch_report, tasks
from core.tasks.class_names import compare_class_names
from core.tasks.submitted_batch import SpooledBatch
from perennial import words
from tests.core.batches import make_batch
from tests.core.office import Office


def make_batch_of_classes(folder: Path, number: int, *labels: str) -> SpooledBatch:
    """Make a batch of these classes, one image each."""
    plain = make_batch(folder, number)
    return replace(plain, directory=replace(plain.directory, classes=dict.fromkeys(labels, 1)))


def make_directory(*labels: str, encoded: bool = True) -> ArchiveSummary:
    return ArchiveSummary(
        dict.fromkeys(labels, 1), len(labels), 0, 0, "zip", "folders", False, encoded=encoded
    )


def describe_merge_edit(label: str, like: str) -> str:
    body = f'{{"operations": [{{"merge": {{"from": ["{label}", "{like}"], "into": "{like}"}}}}]}}'
    return f"Once both are learned, merge them with POST /v1/models/birds/edits {body}."


def test_new_known_and_look_alike_classes_are_named_with_a_warning(
    office: Office, model: str
) -> None:
    office.submit(make_batch_of_classes(office.folder, 0, "hat", "t-shirt"))
    given = make_batch_of_classes(office.folder, 1, "hat", "tshirt", "cap", "Cap")
    checked = office.submission(given).preview_submission()
    answer = office.submit(given)
    for report, warnings in (
        (checked["report"], checked["warnings"]),
        (answer["task"]["report"], answer["task"]["warnings"]),
    ):
        assert report["classes"] == {
            "new": ["Cap", "cap", "tshirt"],
            "known": ["hat"],
            "look_alike": [{"label": "cap", "like": "Cap"}, {"label": "tshirt", "like": "t-shirt"}],
        }
        assert warnings[:2] == [
            "The class “cap” is new, and looks like “Cap”, which is in this batch too: if they are "
            f"one class, give them one name. {describe_merge_edit('cap', 'Cap')}",
            "The class “tshirt” is new, and looks like “t-shirt”, which the model knows: if they "
            f"are one class, give them one name. {describe_merge_edit('tshirt', 't-shirt')}",
        ]
        command = words.replace_requests_by_commands(warnings[1])
        assert (
            "merge them with `perennial classes merge birds tshirt t-shirt --into t-shirt`."
            in command
        )


@pytest.mark.parametrize(
    "actions",
    [
        (JobAction.CANCEL,),
        (JobAction.VALIDATE, JobAction.REJECT),
        (JobAction.VALIDATE, JobAction.START, JobAction.FAIL),
    ],
)
def test_classes_of_a_task_that_will_not_be_learned_are_not_known(
    office: Office, model: str, actions: tuple[JobAction, ...]
) -> None:
    answer = office.submit(make_batch_of_classes(office.folder, 0, "hat"))
    with office.db.write() as session:
        job = lock_job(session, answer["job"]["id"])
        assert job is not None
        for action in actions:
            change_job_state(session, job, action, 1.0)
    checked = office.submission(make_batch_of_classes(office.folder, 1, "hat")).preview_submission()
    assert checked["report"]["classes"] == {"new": ["hat"], "known": [], "look_alike": []}


def test_names_of_a_task_model_are_compared_within_the_batch_only(office: Office) -> None:
    office.create("heads", "task")
    office.submit(make_batch_of_classes(office.folder, 0, "hat"), "heads")
    found = office.submission(
        make_batch_of_classes(office.folder, 1, "Hat", "cap", "CAP"), "heads"
    ).preview_submission()
    assert found["report"]["classes"] == {
        "new": ["CAP", "Hat", "cap"],
        "known": [],
        "look_alike": [{"label": "cap", "like": "CAP"}],
    }


def test_the_fixed_classes_of_a_data_model_are_known_and_a_slip_is_pointed_at(
    office: Office,
) -> None:
    office.create("same", "data", classes=["hat", "t-shirt"])
    found = office.submission(
        make_batch_of_classes(office.folder, 0, "hat"), "same"
    ).preview_submission()
    assert found["report"]["classes"]["known"] == ["hat"]
    with pytest.raises(
        LabelsInvalid, match=r"also has sock, tshirt \(did you mean t-shirt\?\)\."
    ) as caught:
        office.submission(
            make_batch_of_classes(office.folder, 1, "tshirt", "sock"), "same"
        ).preview_submission()
    assert caught.value.extra["unknown"] == ["sock", "tshirt"]


def test_a_data_model_without_classes_yet_knows_those_of_its_tasks(office: Office) -> None:
    office.create("first", "data")
    office.submit(make_batch_of_classes(office.folder, 0, "hat"), "first")
    with office.db.read() as session:
        row = session.query(Model).filter_by(name="first").one()
        assert batch_report.list_known_classes(session, row) == {"hat"}


def test_warnings_of_look_alikes_are_bounded_and_the_report_is_not() -> None:
    found = make_directory(*[f"{a}{b}x" for a in "abcdefghij" for b in ("é", "e", "É")])
    compared = compare_class_names(found.classes, [])
    warnings = batch_report.list_layout_and_class_name_warnings(found, compared, "m", "class")
    assert len(compared.look_alike) == 20 and len(warnings) == 20
    more = batch_report.list_layout_and_class_name_warnings(
        found, replace(compared, look_alike=compared.look_alike * 2), "m", "class"
    )
    assert len(more) == 21 and more[-1].startswith("20 more new classes look like others")


def test_a_check_says_what_it_looked_at_and_what_it_could_not_see(
    office: Office, model: str
) -> None:
    found = office.submission().preview_submission()
    assert found["checked"] == found["report"]["checked"] == "names and sizes"
    assert any("not decoded" in text for text in found["not_checked"])
    assert any("the same image under two classes" in text for text in found["not_checked"])
    assert not any(
        "decoded" in text
        for text in batch_report.describe_unmade_batch_checks(make_directory("a", encoded=False))
    )


def test_what_becomes_of_equal_images_is_kept_with_the_task(office: Office, model: str) -> None:
    given = replace(make_batch(office.folder), duplicates_policy="drop")
    answer = office.submit(given)
    assert answer["task"]["report"]["duplicates_policy"] == "drop"
    assert (
        tasks.read_task(office.db, office.actor, model, 1)["report"]["duplicates_policy"] == "drop"
    )


@pytest.mark.parametrize(
    ("counts", "known", "named"),
    [
        ({"hat": 6, "cap": 40}, [], "“hat” (6)"),
        ({"hat": 6, "cap": 3}, [], "“cap” (3), “hat” (6)"),
        ({"hat": 6, "cap": 40}, ["hat"], None),
        ({"hat": 10, "cap": 40}, [], None),
    ],
)
def test_a_check_says_what_a_new_class_with_few_images_is_answered_like(
    counts: dict[str, int], known: list[str], named: str | None
) -> None:
    found = replace(make_directory(), classes=counts)
    warnings = batch_report.list_few_images_of_new_class_warnings(
        found, compare_class_names(counts, known)
    )
    assert [
        f"fewer than 10 images: {named}." in text and "39% with 6" in text for text in warnings
    ] == [True] * bool(named)
