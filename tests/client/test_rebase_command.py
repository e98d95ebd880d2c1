"""`perennial models rebase` against a real service: what it prints, asks and does."""

import json
from typing import Any

import click
import pytest
from small_batches import SMALL

from perennial import Perennial
from perennial.cli.main import run_command_line
from tools import service

pytestmark = pytest.mark.slow

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def logged_in(running: service.RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)


def create_and_teach(client: Perennial, name: str, *batches: bytes) -> str:
    """Create a model that learns batches, each named by its number, and return its id."""
    made = client.models.create(name, **SMALL)
    for number, batch in enumerate(batches, 1):
        client.submit(name, batch, name=f"week {number}").wait(120)
    return made.id


def run_for_json(capsys: Said, *arguments: str) -> Any:
    """Return the JSON document that a command prints."""
    assert run_command_line([*arguments, "--json"]) == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def run_for_text(capsys: Said, *arguments: str, status: int = 0) -> str:
    """Return what a command prints on both outputs."""
    assert run_command_line(arguments) == status, capsys.readouterr()
    return "".join(capsys.readouterr())


def test_the_batches_to_send_again_are_printed_with_their_commands(
    client: Perennial, capsys: Said, archives: list[bytes]
) -> None:
    create_and_teach(client, "pears", *archives[:2])
    shown = run_for_text(
        capsys, "models", "rebase", "pears", "--base", "perennial/resnet20-cifar100"
    )
    assert "pears-rebased is made beside pears" in shown and "images of 32 pixels" in shown
    for number in (1, 2):
        assert f"perennial submit pears-rebased FILE --name 'week {number}'" in shown
        assert f"sha256 {client.tasks.retrieve('pears', number).sha256[:12]}" in shown
    assert "perennial models rebase pears-rebased --status" in shown
    refused = run_for_text(capsys, "models", "rebase", "pears", "--finish", "--yes", status=1)
    assert "nothing in production that could answer" in refused and "missing" in refused
    assert client.models.retrieve("pears").name == "pears"


def test_production_moves_after_the_comparison_was_shown_and_goes_back(
    client: Perennial, capsys: Said, archives: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_and_teach(client, "other-apples", archives[2])
    old = create_and_teach(client, "apples", archives[0])
    base = json.dumps({"model": "other-apples", "version": 1})
    begun = run_for_json(
        capsys, "models", "rebase", "apples", "--base", base, "--name", "better-apples"
    )
    assert [one["arrival"] for one in begun["tasks"]] == ["relearned"]
    (job,) = client.jobs.list(model="better-apples")
    client.job(job.id).wait(120)

    found = run_for_json(capsys, "models", "rebase", "apples", "--status")
    assert found["ready"] and found["totals"]["flips"]["n"] == 16
    monkeypatch.setattr("click.confirm", abort_prompt)
    assert "On 16 held-out images apples (version 1) is right on " in run_for_text(
        capsys, "models", "rebase", "apples", "--finish", status=130
    )
    assert client.models.retrieve("apples").id == old, "who does not agree moves nothing"
    shown = run_for_text(capsys, "models", "rebase", "apples", "--finish", "--yes")
    assert f"apples is model {begun['new']['id']} now, with version 1 in production." in shown
    assert "The other one is apples-before-rebase." in shown
    assert client.models.retrieve("apples").id == begun["new"]["id"]
    run_for_text(capsys, "models", "rebase", "apples", "--back", "--yes", "--reason", "too slow")
    assert client.models.retrieve("apples").id == old


def abort_prompt(*_: Any, **__: Any) -> None:
    """Answer no to a prompt."""
    raise click.Abort


def test_one_thing_is_asked_for_at_a_time(capsys: Said) -> None:
    assert "Say one of --base BASE" in run_for_text(capsys, "models", "rebase", "plums", status=2)
    assert "There is no model 'plums'" in run_for_text(
        capsys, "models", "rebase", "plums", "--status", status=3
    )
