"""Trials through the client and the command line, with a real service."""

import json
import re
from typing import Any

import pytest
from small_batches import SMALL

from perennial import Perennial
from perennial.cli.main import run_command_line
from tools import service

pytestmark = pytest.mark.slow

Output = pytest.CaptureFixture[str]
HEADS = [{"method": {"name": "analytic", "head": head}} for head in ("lda", "ridge")]


@pytest.fixture(autouse=True)
def logged_in(running: service.RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)


def test_a_table_tells_which_trial_was_chosen_and_why(
    client: Perennial, archives: list[bytes], tmp_path: Any, capsys: Output
) -> None:
    client.models.create("tried", **{**SMALL, "recipe": {"method": "analytic"}})
    batch = tmp_path / "batch.zip"
    batch.write_bytes(archives[0])
    arguments = ["submit", "tried", str(batch), "--trials", json.dumps(HEADS)]
    assert run_command_line([*arguments, "--check"]) == 0
    assert "trial 2: " in capsys.readouterr().out
    assert run_command_line(arguments) == 0, capsys.readouterr()
    printed = capsys.readouterr().out
    assert "Version 1 of tried is published" in printed
    assert " is chosen." in printed
    words = " ".join(printed.split())
    assert re.search(r"Scores rest on \d+ images to learn from, each answered as if", words)
    assert re.search(r"Accuracy and forgetting rest on \d+ held-out images\.", words)
    job = client.versions.retrieve("tried", 1).job
    assert job is not None
    assert run_command_line(["jobs", "trials", job, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table == client.jobs.trials(job).to_dict()
    assert sum(one["why_lost"] is None for one in table["items"]) == 1


def test_a_person_chooses_by_command(
    client: Perennial, archives: list[bytes], tmp_path: Any, capsys: Output
) -> None:
    client.models.create("to-choose", **{**SMALL, "recipe": {"method": "analytic"}})
    handle = client.submit("to-choose", archives[0], trials=HEADS, choose="manual")
    while handle.refresh().state != "choosing":
        assert not handle.refresh().is_terminal
    best = handle.trials().best
    assert best is not None
    assert run_command_line(["jobs", "trials", handle.id]) == 0
    assert f"perennial jobs choose {handle.id} {best}" in " ".join(capsys.readouterr().out.split())
    assert run_command_line(["jobs", "choose", handle.id, str(3 - best)]) == 0
    assert f"Trial {3 - best} is chosen." in capsys.readouterr().out
    assert handle.wait().version == 1


def test_a_budget_leaves_trials_out_and_the_table_says_so(
    client: Perennial, archives: list[bytes], tmp_path: Any, capsys: Output
) -> None:
    client.models.create("limited", **{**SMALL, "recipe": {"method": "analytic"}})
    batch = tmp_path / "batch.zip"
    batch.write_bytes(archives[0])
    arguments = ["submit", "limited", str(batch), "--trials", json.dumps(HEADS)]
    assert run_command_line([*arguments, "--max-seconds", "0.001"]) == 0, capsys.readouterr()
    printed = " ".join(capsys.readouterr().out.split())
    assert "skipped" in printed
    assert "Trial 1 is chosen." in printed
    job = client.versions.retrieve("limited", 1).job
    assert job is not None
    table = client.jobs.trials(job)
    assert table.max_seconds == 0.001
    assert [one.state for one in table.items] == ["measured", "skipped"]
