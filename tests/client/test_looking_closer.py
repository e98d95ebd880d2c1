"""Commands that look closer, against answers that a test writes: issues, evaluate, states, recipes,
status.
"""

import copy
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stub
from sample_answers import find_sample_answer
from terminal import record_command

from perennial.cli.main import run_command_line
from perennial.cli.models.evaluate import compute_wilson_interval

Said = pytest.CaptureFixture[str]
Answers = dict[str, Any]
TASK, TASKS = "/v1/models/birds/tasks/1", "/v1/models/birds/tasks"
JOBS, MODELS, VERSIONS = "/v1/jobs", "/v1/models", "/v1/models/birds/versions"
PREDICT = "/v1/models/birds/versions/production/predict"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """Answers by path; what a test does not write is a sample of the API's own types."""
    said: Answers = {}

    def answer_service_request(asked: stub.Asked) -> stub.Said:
        bare = asked.path.partition("?")[0]
        found = said[bare] if bare in said else find_sample_answer(asked.method, asked.path)
        return found(asked) if callable(found) else stub.Said(body=found)

    with stub.run_stub(answer_service_request) as service:
        monkeypatch.setenv("PERENNIAL_URL", service.url)
        monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
        yield said


def make_sample(path: str, **fields: Any) -> Any:
    """Return a copy of the sample answer of a path with other fields."""
    return {**copy.deepcopy(find_sample_answer("GET", path)), **fields}


def make_page(path: str, *items: dict[str, Any]) -> Any:
    """Build a list whose items differ from the sample answer in some fields."""
    first = find_sample_answer("GET", path)["items"][0]
    return {"items": [{**copy.deepcopy(first), **fields} for fields in items], "next_cursor": None}


def test_suspects_near_duplicates_and_the_rest_are_rows_and_cut_lists_are_told(
    capsys: Said, answers: Answers
) -> None:
    task = make_sample(TASK)
    pair = {"path": "train/cat/2.png", "like": "train/cat/1.png"}
    spread = {"path": "test/cat/9.png", "like": "train/cat/1.png"}
    task["report"] |= {
        "data": {
            "suspects": [
                {
                    "index": 4,
                    "path": "train/cat/4.png",
                    "label": "cat",
                    "suggested": "dog",
                    "score": 12.5,
                },
                {"index": 5, "path": None, "label": "dog", "suggested": "cat", "score": 2.0},
            ],
            "suspects_count": 7,
            "near_duplicates": {
                "within": {"count": 2, "examples": [pair, spread]},
                "held_out": {"count": 1, "examples": [spread]},
                "earlier": [
                    {"task": 3, "count": 1, "held_out": 0, "examples": [{**pair, "like": None}]}
                ],
                "not_compared": [],
                "complete": True,
            },
        },
        "duplicates": 1,
        "duplicate_paths": [{"path": "a.png", "same_as": "b.png"}],
        "conflicts": [{"paths": ["cat/1.png", "dog/1.png"], "labels": ["cat", "dog"]}],
        "conflicts_count": 1,
        "rejected": [{"path": "x.png", "reason": "no image, that"}],
        "rejected_count": 1,
    }
    answers[TASK] = task
    assert run_command_line(["issues", "birds", "1", "--csv"]) == 0
    out, told = capsys.readouterr()
    assert out.splitlines() == [
        "kind,image,path,label,suggested,score,like,where",
        "suspect,4,train/cat/4.png,cat,dog,12.5,,train",
        "suspect,5,train 5,dog,cat,2.0,,train",
        "near_duplicate,,train/cat/2.png,,,,train/cat/1.png,batch",
        "near_duplicate,,test/cat/9.png,,,,train/cat/1.png,held out and learned",
        "near_duplicate,,train/cat/2.png,,,,,task 3",
        "duplicate,,a.png,,,,b.png,batch",
        "conflict,,dog/1.png,dog,cat,,cat/1.png,batch",
        'rejected,,x.png,,,,,"no image, that"',
    ]
    assert told == "suspect: 2 of 7 are listed.\n"
    assert run_command_line(["issues", "birds", "1", "--kind", "conflict", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["kind"], only["path"], only["suggested"]) == ("conflict", "dog/1.png", "cat")


@pytest.mark.parametrize("standing", ["learned", "rejected"])
def test_a_suspect_comes_with_the_command_that_corrects_it(
    standing: str, capsys: Said, answers: Answers
) -> None:
    task = make_sample(TASK, standing=standing)
    suspect = {"index": 4, "path": "train/cat/4.png", "label": "cat", "suggested": "guinea pig"}
    task["report"]["data"] = {"suspects": [{**suspect, "score": 12.5}], "suspects_count": 1}
    answers[TASK] = task
    command = "perennial images relabel birds 1 4 --to 'guinea pig'"
    url = os.environ["PERENNIAL_URL"]
    on_terminal = record_command(url, "pk_x", "issues", "birds", "1", "--kind", "suspect")
    assert run_command_line(["issues", "birds", "1", "--kind", "suspect", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    if standing == "learned":
        assert row["command"] == command
        assert command in on_terminal.last[-1]
    else:  # there is no learned image to correct
        assert row["command"] is None and command not in on_terminal.words
        assert "Correct the labels in the batch, and send it again." in on_terminal.words


def test_suspects_come_with_the_reason_if_the_service_refuses_to_correct_them(
    capsys: Said, answers: Answers
) -> None:
    task = make_sample(TASK, standing="learned")
    suspect = {"index": 4, "path": "train/cat/4.png", "label": "cat", "suggested": "dog"}
    task["report"]["data"] = {"suspects": [{**suspect, "score": 12.5}], "suspects_count": 1}
    answers[TASK] = task
    asked: list[dict[str, Any]] = []

    def refuse_edit(request: stub.Asked) -> stub.Said:
        asked.append(json.loads(request.body))
        detail = "It cannot be edited: it becomes a task, which predictions name by ?task=."
        return stub.Said(422, {"type": "/problems/invalid", "detail": detail})

    answers["/v1/models/birds/edits"] = refuse_edit
    url = os.environ["PERENNIAL_URL"]
    shown = record_command(url, "pk_x", "issues", "birds", "1", "--kind", "suspect").words
    assert "It cannot be edited: it becomes a task, which predictions name by --task." in shown
    assert "relabel" not in shown
    assert run_command_line(["issues", "birds", "1", "--kind", "suspect", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["command"] is None
    assert asked[0] == {"operations": [{"relabel": {"task": 1, "image": 4, "label": "dog"}}]}


def test_a_log_names_commands_in_place_of_requests(capsys: Said, answers: Answers) -> None:
    path = f"{JOBS}/job_1/logs"
    message = "It was rolled back: POST /v1/models/birds/tasks/2/relearn learns it again."
    answers[path] = make_page(
        path, {"level": "warning", "message": message, "at": "2026-11-23T14:35:00Z"}
    )
    assert run_command_line(["jobs", "logs", "job_1"]) == 0
    said = capsys.readouterr().out
    assert said == (
        "14:35:00 warning: It was rolled back: `perennial tasks relearn birds 2` learns it again.\n"
    )


def test_a_batch_without_a_report_has_no_issues(capsys: Said, answers: Answers) -> None:
    answers[TASK] = make_sample(TASK, report={})
    assert run_command_line(["issues", "birds", "1", "--csv"]) == 0
    assert capsys.readouterr() == ("kind,image,path,label,suggested,score,like,where\n", "")


@pytest.fixture
def photos(tmp_path: Path, answers: Answers) -> Path:
    """A folder with three cats and two dogs; a version calls the image 2 of each a dog, and the
    others cats.
    """
    folder = tmp_path / "photos"
    for name in ("cat/1", "cat/2", "cat/3", "dog/1", "dog/2"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.png").write_bytes(name[-1].encode())
    usual = find_sample_answer("POST", PREDICT)

    def predict_by_first_byte(asked: stub.Asked) -> stub.Said:
        contents = [
            part.partition(b"\r\n\r\n")[2].strip(b"\r\n-")
            for part in asked.body.split(b"filename=")[1:]
        ]
        called = ["dog" if content[:1] == b"2" else "cat" for content in contents]
        said = [
            {**usual["predictions"][0], "label": label, "probabilities": {label: 0.75}}
            for label in called
        ]
        return stub.Said(body={**usual, "predictions": said, "version": 4})

    answers[PREDICT] = predict_by_first_byte
    return folder


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (
            "",
            "cat\t3\t2\t0.6666666666666666\t3\t0.6666666666666666\tdog "
            "(1)\ndog\t2\t1\t0.5\t2\t0.5\tcat (1)\n",
        ),
        ("--columns class,right", "cat\t2\ndog\t1\n"),
        ("--list confusion --csv", "class,called,images\ncat,dog,1\ndog,cat,1\n"),
        ("--list images --wrong --columns image,called", "cat/2.png\tdog\ndog/1.png\tcat\n"),
    ],
)
def test_a_version_is_evaluated_on_a_folder_that_is_not_learned(
    capsys: Said, photos: Path, options: str, shown: str
) -> None:
    assert run_command_line(["evaluate", "birds", str(photos), *options.split()]) == 0
    out, told = capsys.readouterr()
    assert out == shown
    assert told == "Version 4 of birds: 3 of 5 images right, 60.0% (95 %: 23.1% to 88.2%).\n"


def test_an_evaluation_as_json_has_all_figures(capsys: Said, photos: Path) -> None:
    assert run_command_line(["evaluate", "birds", str(photos), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["right"], found["accuracy"], found["version"]) == (5, 3, 0.6, 4)
    assert found["confusion"] == [
        {"class": "cat", "called": "dog", "images": 1},
        {"class": "dog", "called": "cat", "images": 1},
    ]
    assert found["classes"][0]["precision"] == pytest.approx(2 / 3)


def test_an_image_that_cannot_be_used_does_not_count_and_ends_with_1(
    capsys: Said, photos: Path, answers: Answers
) -> None:
    usual: Callable[[stub.Asked], stub.Said] = answers[PREDICT]

    def predict_with_invalid_image(asked: stub.Asked) -> stub.Said:
        said = usual(asked)
        said.body["predictions"][0] = {
            "error": {"code": "image-invalid", "detail": "It is no image."}
        }
        return said

    answers[PREDICT] = predict_with_invalid_image
    assert run_command_line(["evaluate", "birds", str(photos), "-q"]) == 1
    told = capsys.readouterr().err
    assert "cat/1.png: It is no image." in told and "2 of 4 images right" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["batch.zip"], "is an archive: unpack it"),
        (["empty"], "empty"),
        (["photos", "--wrong"], "--wrong is for --list images"),
        (["photos", "--columns", "images,sure"], "There is no column 'sure'"),
    ],
)
def test_an_evaluation_that_cannot_be_is_told(
    capsys: Said, photos: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    with zipfile.ZipFile(tmp_path / "batch.zip", "w") as archive:
        archive.writestr("cat/1.png", b"1")
    (tmp_path / "empty").mkdir()
    assert run_command_line(["evaluate", "birds", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_interval_of_an_accuracy_is_wilsons() -> None:
    low, high = compute_wilson_interval(14, 16) or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.6398, 0.9650)
    assert compute_wilson_interval(0, 0) is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("held", ["j2"]),
        ("waiting", ["j3"]),
        ("queued", ["j3", "j4"]),
        ("train", ["j1"]),
        ("running", ["j1"]),
        ("succeeded", ["j2"]),
    ],
)
def test_every_state_that_jobs_show_can_be_asked_for(
    capsys: Said, answers: Answers, wanted: str, found: list[str]
) -> None:
    usual = find_sample_answer("GET", JOBS)["items"][0]
    each = [
        {"id": "j1", "state": "running", "progress": {**usual["progress"], "phase": "train"}},
        {"id": "j2", "state": "succeeded", "outcome": "held"},
        {
            "id": "j3",
            "state": "queued",
            "outcome": None,
            "waiting_for": {"kind": "held", "detail": "It waits."},
        },
        {"id": "j4", "state": "queued", "outcome": None},
    ]

    def list_jobs_by_state(asked: stub.Asked) -> stub.Said:
        state = asked.path.partition("state=")[2].partition("&")[0]
        return stub.Said(body=make_page(JOBS, *(one for one in each if one["state"] == state)))

    answers[JOBS] = list_jobs_by_state
    assert run_command_line(["jobs", "list", "--state", wanted, "-q"]) == 0
    assert capsys.readouterr().out.split() == found


@pytest.mark.parametrize(
    ("command", "path", "first", "items"),
    [
        (
            "tasks list birds --standing held",
            TASKS,
            "number",
            [{"standing": "learned"}, {"standing": "held"}],
        ),
        (
            "versions list birds --status held",
            VERSIONS,
            "number",
            [{"status": "published"}, {"status": "held"}],
        ),
        (
            "webhooks list --state failing",
            "/v1/webhooks",
            "id",
            [{"state": "enabled"}, {"state": "failing"}],
        ),
        ("models list --waits held", MODELS, "name", [{"attention": []}, {}]),
    ],
)
def test_what_a_listing_shows_can_be_asked_for(
    capsys: Said, answers: Answers, command: str, path: str, first: str, items: list[dict[str, Any]]
) -> None:
    usual = find_sample_answer("GET", path)["items"][0]
    numbered = enumerate(items, start=1)
    kind = str if isinstance(usual[first], str) else int
    answers[path] = make_page(
        path, *({first: kind(number), **fields} for number, fields in numbered)
    )
    for entry in answers[path]["items"][1].get("attention", ()):
        entry["kind"] = "held"
    assert run_command_line([*command.split(), "-q"]) == 0
    assert capsys.readouterr().out.split() == ["2"]


@pytest.mark.parametrize(
    ("kinds", "ready", "status"),
    [
        ([], "ready", 0),
        (["held"], "ready", 10),
        (["failed", "rejected"], "ready", 11),
        (["failed"], "ready", 12),
        (["rolled_back"], "ready", 1),
        (["held"], "not ready", 5),
    ],
)
def test_status_ends_as_what_waits_says_where_that_is_asked_for(
    answers: Answers, kinds: list[str], ready: str, status: int
) -> None:
    models = make_page(MODELS, {})
    usual = models["items"][0]["attention"][0]
    models["items"][0]["attention"] = [{**usual, "kind": kind} for kind in kinds]
    answers |= {MODELS: models, "/readyz": make_sample("/readyz", status=ready)}
    assert run_command_line(["status"]) == 0
    assert run_command_line(["status", "--exit-code"]) == status


def test_a_model_is_shown_with_its_recipe(capsys: Said, answers: Answers) -> None:
    recipe = {
        "preset": None,
        "method": {"name": "der++", "alpha": 0.5, "note": None},
        "optimizer": {"name": "sgd", "lr": 0.03, "carry_state": False},
        "epochs": 5,
    }
    answers["/v1/models/birds"] = make_sample("/v1/models/birds", recipe=recipe)
    assert run_command_line(["models", "show", "birds"]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("recipe")]
    assert shown == ["recipe\tder++, alpha 0.5; optimizer sgd, lr 0.03, carry_state no; epochs 5"]


@pytest.mark.parametrize(
    ("architecture", "told"),
    [
        ({"name": "resnet20"}, "resnet20"),
        ({"name": "resnet", "width": 16, "norm": None}, "resnet, width 16"),
        ({"name": "timm", "model": "resnet18.a1_in1k"}, "resnet18.a1_in1k (timm)"),
    ],
)
def test_a_model_is_shown_with_the_name_of_its_network(
    capsys: Said, answers: Answers, architecture: dict[str, Any], told: str
) -> None:
    answers["/v1/models/birds"] = make_sample("/v1/models/birds", architecture=architecture)
    assert run_command_line(["models", "show", "birds"]) == 0
    assert f"architecture\t{told}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("aliases", "told"),
    [({"latest": None, "production": None}, ""), ({"latest": 8, "production": None}, "latest 8")],
)
def test_aliases_without_a_version_are_not_shown(
    capsys: Said, answers: Answers, aliases: dict[str, int | None], told: str
) -> None:
    answers["/v1/models/birds"] = make_sample("/v1/models/birds", aliases=aliases)
    assert run_command_line(["models", "show", "birds"]) == 0
    assert f"aliases\t{told}\n" in capsys.readouterr().out


def test_a_task_is_shown_with_the_version_in_production_beside_the_newest(
    capsys: Said, answers: Answers
) -> None:
    answers["/v1/models/birds"] = make_sample(
        "/v1/models/birds", aliases={"latest": 8, "production": 7}
    )
    assert run_command_line(["tasks", "show", "birds", "11"]) == 0
    out = capsys.readouterr().out
    assert "now is version\t8\nproduction is version\t7\n" in out


def test_a_check_counts_ignored_files_of_archives_alone(
    capsys: Said, answers: Answers, photos: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("cat/1.png", b"an image")
    assert run_command_line(["submit", "birds", str(archive), "--check"]) == 0
    assert "ignored files\t1\n" in capsys.readouterr().out
    assert run_command_line(["submit", "birds", str(photos), "--check"]) == 0
    assert "ignored files" not in capsys.readouterr().out


LIMITS = ("max-forgetting", "min-new-task", "min-acc", "max-predicted-loss-rise", "max-negative-flips", "min-coverage",
          "forgotten", "confused", "class-lost", "drifted", "learned-nothing", "features-collapsed")  # fmt: skip


@pytest.mark.parametrize("word", ["none", "off", "NONE"])
def test_every_limit_of_a_gate_can_be_taken_off(answers: Answers, word: str) -> None:
    sent: list[Any] = []

    def record_model_change(asked: stub.Asked) -> stub.Said:
        sent.append(json.loads(asked.body))
        return stub.Said(body=make_sample("/v1/models/birds"))

    answers["/v1/models/birds"] = record_model_change
    assert (
        run_command_line(
            ["models", "set", "birds", *(part for name in LIMITS for part in (f"--{name}", word))]
        )
        == 0
    )
    assert sent == [{"gate": {name.replace("-", "_"): None for name in LIMITS}}]


def test_what_is_no_limit_can_be_reset_too(answers: Answers) -> None:
    sent: list[Any] = []

    def record_model_change(asked: stub.Asked) -> stub.Said:
        sent.append(json.loads(asked.body))
        return stub.Said(body=make_sample("/v1/models/birds"))

    answers["/v1/models/birds"] = record_model_change
    options = [
        "--precision",
        "none",
        "--training-data-days",
        "none",
        "--description",
        "",
        "--tag",
        "",
    ]
    assert run_command_line(["models", "set", "birds", *options]) == 0
    assert sent == [{"answers": None, "training_data_days": None, "description": None, "tags": []}]


@pytest.mark.parametrize(
    ("place", "file"),
    [
        ("out/", "out/birds-1.zip"),
        ("there", "there/birds-1.zip"),
        ("new/x.zip", "new/x.zip"),
        (None, "birds-1.zip"),
    ],
)
def test_a_place_that_ends_with_a_slash_or_exists_is_a_folder(
    tmp_path: Path, place: str | None, file: str
) -> None:
    from perennial.cli.models.download import resolve_output_path_and_make_folder

    (tmp_path / "there").mkdir()
    assert resolve_output_path_and_make_folder(place, "birds-1.zip") == Path(file)
    assert Path(file).parent.is_dir()
