"""Edits through the client and the command line, with a real service; and answers that are lost."""

import asyncio
import json
from typing import Any

import pytest
from small_batches import SMALL, create_taught_model
from stub import Asked, Said, build_problem, run_stub_with_client

from perennial import AsyncPerennial, Conflict, NotFound, Perennial, types
from perennial.cli.main import run_command_line
from perennial.cli.models.edits import describe_edit_plan
from tools import service

pytestmark = pytest.mark.slow

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def logged_in(running: service.RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)


@pytest.fixture
def model(client: Perennial, archives: list[bytes]) -> str:
    """A model with one version, of the classes 0 and 1, and perhaps edits of another test."""
    return create_taught_model(client, "edited", archives[0])


def run_for_json(capsys: Output, *arguments: str) -> Any:
    capsys.readouterr()
    assert run_command_line([*arguments, "--json"]) == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def test_a_label_is_corrected_and_the_correction_is_undone(
    client: Perennial, model: str, running: service.RunningService
) -> None:
    image = next(iter(client.tasks.images(model, 1, split="train", label="1")))
    operations = [{"relabel": {"task": 1, "image": image.index, "label": "0"}}]
    plan = client.edits.plan(model, operations)
    assert (plan.way, plan.tasks, plan.can_undo) == ("relearn", [1], True)
    edit = client.edits.create(model, operations, reason="it is a 0")
    made = client.edits.wait(model, edit.number, 120)
    assert (made.state, made.images.relabelled, made.reason) == ("succeeded", 1, "it is a 0")
    corrected = client.tasks.images(model, 1, split="train", label="0")
    assert image.index in {one.index for one in corrected}

    async def undo_edit_twice() -> types.Edit:
        async with AsyncPerennial(running.key, base_url=running.url) as other:
            await other.edits.undo(model, edit.number)
            return await other.edits.undo(model, edit.number)  # repeating it changes nothing

    assert asyncio.run(undo_edit_twice()).undone_at is not None
    assert client.models.retrieve(model).line_head == made.parent
    assert next(iter(client.edits.list(model))).number == edit.number


def test_a_former_class_name_is_listed_and_removed(client: Perennial, model: str) -> None:
    edit = client.edits.create(model, [{"rename": {"from": "1", "to": "one"}}])
    with pytest.raises(Conflict, match=rf"Edit {edit.number} is "):
        client.edits.create(model, [{"rename": {"from": "0", "to": "zero"}}])
    client.edits.wait(model, edit.number, 120)
    assert [(one.name, one.to) for one in client.class_aliases.list(model)] == [("1", "one")]
    client.class_aliases.delete(model, "1")
    assert client.class_aliases.list(model) == []
    with pytest.raises(NotFound):
        client.class_aliases.delete(model, "1")
    client.edits.undo(model, edit.number)


def test_the_command_line_shows_a_plan_asks_sends_and_says_how_to_undo(
    client: Perennial, model: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = next(iter(client.edits.list(model)), None)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert run_command_line(["classes", "rename", model, "0", "zero"]) == 1
    out, told = capsys.readouterr()
    assert out == "" and "Way: relearn; " in told and "Classes: 2 before, 2 after." in told
    assert "It can be undone later" in told and "Nothing was done." in told
    assert run_command_line(["classes", "rename", model, "0", "1", "--yes"]) == 1
    assert "To make one class of both, use `perennial classes merge`." in capsys.readouterr().err
    assert next(iter(client.edits.list(model)), None) == newest
    assert (
        run_command_line(["classes", "rename", model, "0", "zero", "--yes", "--reason", "words"])
        == 0
    )
    out, _ = capsys.readouterr()
    edit = next(iter(client.edits.list(model)))
    assert f"Version {edit.version} of edited is published, and in production." in out
    assert f"  perennial edits undo edited {edit.number}" in out
    listed = {row["class"]: row for row in run_for_json(capsys, "classes", "list", model)}
    assert listed.keys() == {"zero", "1"} and listed["zero"]["tasks"] == [1]
    assert run_for_json(capsys, "classes", "aliases", model)[0]["name"] == "0"
    assert run_for_json(capsys, "edits", "show", model, str(edit.number))["reason"] == "words"
    assert run_command_line(["edits", "undo", model, str(edit.number), "--yes"]) == 0
    assert f"Edit {edit.number} is undone" in capsys.readouterr().out
    assert run_command_line(["edits", "list", model, "--columns", "state,reason"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "undone\twords"


def test_images_are_listed_removed_and_not_brought_back(
    client: Perennial, archives: list[bytes], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.models.create("forgets", **SMALL)
    client.submit("forgets", archives[0]).wait(120)
    listed = run_for_json(capsys, "images", "list", "forgets", "1", "--class", "1", "-n", "2")
    assert [one["label"] for one in listed] == ["1", "1"]
    numbers = [str(one["index"]) for one in listed]
    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda text, **_: asked.append(text) or True)
    assert run_command_line(["images", "remove", "forgets", "1", *numbers]) == 0
    out, told = capsys.readouterr()
    assert "It cannot be undone: images that it removes are not restored." in told
    assert len(asked) == 1 and "2 images removed" in out
    assert run_command_line(["edits", "undo", "forgets", "1", "--yes"]) == 1
    assert "nothing is kept to restore them" in capsys.readouterr().err
    assert run_command_line(["images", "relabel", "forgets", "1", "999", "--to", "0", "--yes"]) == 3
    assert run_command_line(["images", "remove", "forgets", "1"]) == 2


EDIT = {
    "number": 2,
    "job": "job_2",
    "state": "queued",
    "operations": 1,
    "way": "relearn",
    "tasks": [1],
    "images": {"relabelled": None, "removed": None},
    "parent": 1,
    "version": None,
    "reason": "once",
    "created_at": "2026-11-29T06:00:00Z",
    "undo_until": None,
    "undone_at": None,
    "files": [],
    "still_in_versions": [],
}


@pytest.mark.usefixtures("no_pauses")
def test_an_edit_whose_answer_is_lost_is_sent_again_under_its_key() -> None:
    answers = [Said(202, EDIT, cut=20), Said(202, EDIT)]
    with run_stub_with_client(lambda _asked: answers.pop(0)) as (stub, client):
        assert client.edits.create("hats", [{"drop": {"class": "hat"}}]).number == 2
        first, second = stub.asked
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


@pytest.mark.usefixtures("no_pauses")
def test_a_second_edit_is_refused_with_the_job_of_the_open_one() -> None:
    refusal = "Edit 1 is running: wait for its job job_1, or cancel it."

    def refuse_second_edit(asked: Asked) -> Said:
        if asked.method == "POST":
            return build_problem(409, "wrong-state", refusal)
        return Said(200, {"items": [], "next_cursor": None})

    with run_stub_with_client(refuse_second_edit) as (stub, client):
        with pytest.raises(Conflict, match=r"Edit 1 is running"):
            client.edits.create("hats", [{"drop": {"class": "hat"}}])
        assert [one.method for one in stub.asked].count("POST") == 1


def test_a_plan_says_that_a_patch_is_approximate_and_what_it_does_not_know() -> None:
    fields = {"parent": 3, "tasks": [1, 2], "learned_again": [], "operations": 1}
    classes = {"classes_before": 6, "classes_after": 5, "can_undo": True}
    plan = types.EditPlan(
        way="patch", approximation="A merged class gets a mean.", **fields, **classes
    )
    said = " ".join(describe_edit_plan(plan))
    assert "rows of its classifier change" in said
    assert "Approximate: A merged class gets a mean." in said
    exact = types.EditPlan(way="rename", approximation=None, **fields, **classes)
    assert "Approximate" not in " ".join(describe_edit_plan(exact))
