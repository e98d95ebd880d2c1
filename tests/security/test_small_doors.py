"""Small doors, against a real service on the loopback address: order, names, files, the first key,
figures, names of two.

Each attack worked once; `docs/reference/limits.md` and the files beside the code say what stands
against it.
"""

import os
import pty
import select
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.core.ingest.hostile_corpus import build_zip, draw_png
from tests.live_files import list_live_paths
from tests.rest import Rest
from tests.security.owners import NETWORK, RECIPE, make_client, make_key
from tools import service
from tools.service import ROOT, RunningService

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"recipe": RECIPE, "image": {"size": 8}, "architecture": NETWORK}
HIDDEN = {
    "U+202E": "\u202egnp.tac",
    "U+200B": "cat\u200b",
    "U+001B": "\x1b[2Jcat",
    "U+E0041": "cat\U000e0041",
}


def build_batch(*labels: str) -> bytes:
    """Build a zip of four small pictures of each class."""
    return build_zip(
        {
            f"{label}/{i}.png": draw_png(4 * number + i)
            for number, label in enumerate(labels)
            for i in range(4)
        }
    )


def create_if_missing(admin: Rest, name: str) -> None:
    """Create a model that several cases share."""
    if admin.http.get(f"/v1/models/{name}").status_code == 404:
        admin.models.create(name, **SMALL)


def assert_refused(answer: httpx2.Response, *words: str) -> None:
    assert answer.status_code == 422, answer.text
    for word in words:
        assert word in answer.text, answer.text


def test_one_owners_queue_keeps_another_waiting_for_one_job_at_most(admin: Rest) -> None:
    many, one = make_client(admin, "many"), make_client(admin, "one")
    for client, names in ((many, [f"queue-{n}" for n in range(3)]), (one, ["single"])):
        for name in names:
            client.models.create(name, **SMALL)
    theirs = [many.submit(f"queue-{n}", build_batch("a", "b")).id for n in range(3)]
    mine = one.wait(one.submit("single", build_batch("a", "b")))
    jobs = [many.wait(each) for each in theirs]
    before = [job for job in jobs if mine.created_at < job.started_at < mine.started_at]
    assert len(before) <= 1, (
        f"waited for {len(before)} jobs of another owner that began after it came"
    )


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/models/named/aliases/prod%0A", {"version": 0}),
        ("POST", "/v1/models", {"name": "birds\n", "scenario": "class"}),
        ("POST", "/v1/keys", {"name": "k", "owner": "team\n"}),
        ("POST", "/v1/models/named/aliases/prod%0A/rollback", {}),
    ],
)
def test_a_line_break_at_the_end_makes_no_name(
    admin: Rest, method: str, path: str, body: dict[str, Any]
) -> None:
    create_if_missing(admin, "named")
    assert_refused(admin.http.request(method, path, json=body))


@pytest.mark.parametrize("called", HIDDEN)
def test_what_cannot_be_seen_is_in_no_name_and_no_reason(admin: Rest, called: str) -> None:
    text = HIDDEN[called]
    create_if_missing(admin, "seen")
    body = build_batch("a", "b")
    sent = {"Content-Type": "application/zip"}
    tries = [
        admin.http.post("/v1/models/seen/tasks", params={"name": text}, content=body, headers=sent),
        admin.http.post("/v1/keys", json={"name": text}),
        admin.http.put("/v1/models/seen/aliases/canary", json={"version": 0, "reason": text}),
        admin.http.post(
            "/v1/models", json={"name": "fixed", "scenario": "data", "classes": ["dog", text]}
        ),
    ]
    for answer in tries:
        assert_refused(answer, called, "position")
    by_folder = admin.http.post(
        "/v1/models/seen/tasks", content=build_batch("dog", text), headers=sent
    )
    assert by_folder.status_code == 422, by_folder.text
    assert admin.items("/v1/models/seen/tasks") == []


def test_others_on_the_machine_read_nothing_of_the_service(
    running: RunningService, admin: Rest
) -> None:
    admin.models.create("private", **SMALL)
    assert admin.wait(admin.submit("private", build_batch("a", "b"))).state == "succeeded"
    admin.call("GET", "/v1/models/private/versions/1/download")
    own = running.log  # the test made it
    inside = list_live_paths(running.data_dir)
    seen = [path for path in inside if path != own and not path.is_symlink()]
    wide = {}
    for path in [running.data_dir, *seen]:
        with suppress(FileNotFoundError):
            if (mode := stat.S_IMODE(path.lstat().st_mode)) & 0o077:
                wide[str(path)] = oct(mode)
    assert len(seen) > 10 and wide == {}


def test_a_log_never_holds_the_first_admin_key(running: RunningService) -> None:
    log = running.log.read_text()
    assert running.key not in log and "pk_" not in log
    assert [line for line in log.splitlines() if str(running.data_dir / "admin-key") in line], (
        "where it is must be said"
    )


def test_a_terminal_shows_the_first_admin_key(tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    (tmp_path / "data").mkdir()
    own = {
        "PERENNIAL_DATA_DIR": str(tmp_path / "data"),
        "PERENNIAL_PORT": str(service.find_free_port()),
    }
    service.link_shared_test_catalogue(tmp_path / "data")
    command = [sys.executable, "-m", "worker.launcher"]
    environment = {**os.environ, **own}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=terminal, stderr=terminal)
    os.close(terminal)
    said, end = "", time.monotonic() + 60
    while "Admin key" not in said and time.monotonic() < end and process.poll() is None:
        if select.select([main], [], [], 0.2)[0]:
            said += os.read(main, 4096).decode()
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    os.close(main)
    assert (tmp_path / "data" / "admin-key").read_text().strip() in said


@pytest.mark.parametrize(
    ("scope", "status"), [("read", 403), ("write", 403), ("scrape", 200), ("admin", 200)]
)
def test_the_figures_of_all_owners_are_for_prometheus_and_administrators(
    running: RunningService, admin: Rest, scope: str, status: int
) -> None:
    given = {"Authorization": f"Bearer {make_key(admin, 'figures', scope)}"}
    assert httpx2.get(f"{running.url}/metrics", headers=given, timeout=60).status_code == status


def test_a_key_for_prometheus_opens_nothing_else(running: RunningService, admin: Rest) -> None:
    given = {"Authorization": f"Bearer {make_key(admin, 'figures', 'scrape')}"}
    for path in ("/v1/models", "/v1/jobs", "/v1/methods", "/v1/keys", "/v1/audit", "/v1/usage"):
        answer = httpx2.get(f"{running.url}{path}", headers=given, timeout=60)
        assert answer.status_code == 403, path


def test_an_administrator_touches_no_model_by_a_name_that_two_owners_have(admin: Rest) -> None:
    first, second = make_client(admin, "first"), make_client(admin, "second")
    ids = {
        first.models.create("shared", **SMALL).id: "first",
        second.models.create("shared", **SMALL).id: "second",
    }
    answer = admin.http.delete("/v1/models/shared")
    assert answer.status_code == 409 and answer.json()["type"] == "/problems/name-ambiguous", (
        answer.text
    )
    assert {model["id"]: model["owner"] for model in answer.json()["models"]} == ids
    for owner in (first, second):
        assert owner.get("/v1/models/shared")["name"] == "shared"
    for id_ in ids:
        assert admin.get(f"/v1/models/{id_}")["id"] == id_
    assert admin.http.get("/v1/jobs", params={"model": "shared"}).status_code == 409
    admin.models.delete(next(iter(ids)))
    assert admin.get("/v1/models/shared")["id"] == list(ids)[1], "one is left: the name is enough"


def test_an_administrators_own_model_is_meant_by_its_name(admin: Rest) -> None:
    """Else any owner could take the administrator's names from him by using them."""
    own = admin.models.create("mine", **SMALL).id
    make_client(admin, "copycat").models.create("mine", **SMALL)
    make_client(admin, "mimic").models.create("mine", **SMALL)
    assert admin.get("/v1/models/mine")["id"] == own
