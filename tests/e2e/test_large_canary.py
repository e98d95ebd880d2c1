"""Secrets do not leak: canaries are the service's secrets, and nothing that it writes or sends
contains one.

The service at its large size has unique passwords, does its work, gets invalid requests with
secrets in wrong places, and runs beside processes whose passwords are refused. Then its logs,
command lines, rows, small objects of the store, problems and metrics are searched.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import psutil
import pytest
import s3_server
from large_size import LargeSize, build_api_command, build_worker_command
from sqlalchemy.engine import make_url

from core.storage import ObjectStorage, open_object_store
from tests.e2e import guarded_site, small
from tests.e2e.guarded_site import Site, make_canary
from tests.rest import Rest
from tools import service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services("postgresql", "redis", "s3"),
]

TABLES = ("events", "audit", "jobs", "tasks", "versions", "models", "alias_moves", "keys")


class Said:
    """Texts that the service wrote or sent, by place."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, where: str, text: str) -> None:
        self.texts[where] = self.texts.get(where, "") + text

    def find_places(self, secret: str) -> list[str]:
        return [where for where, text in self.texts.items() if secret in text]


def test_no_secret_is_written_or_said(tmp_path: Path, large_site: Site, s3: Any) -> None:
    said = Said()
    large, client = large_site.large, large_site.client
    wrong = {name: make_canary(name) for name in ("WrongDatabase", "WrongRedis", "WrongStore")}
    hunted = {**large_site.passwords, **wrong, "ObjectStorage": s3_server.SECRET_KEY}
    hunted["AdminKey"] = (large.data("api") / "admin-key").read_text().strip()
    hunted["AdminKeySecret"] = hunted["AdminKey"].split("_", 2)[2]
    user = client.call(
        "POST", "/v1/keys", json={"name": "u", "owner": "user", "scope": "write"}
    ).json()
    hunted["UserKey"] = user["secret"].split("_", 2)[2]
    hunted |= _learn_and_read(client, said)
    hunted |= _send_wrong_requests(large.url, user["secret"], said)
    _start_with_wrong_passwords(large, large_site.passwords["Redis"], wrong, said)
    said.add("/metrics", client.call("GET", "/metrics").text)
    _collect_texts(
        large, open_object_store(s3.settings(tmp_path, prefix=guarded_site.PREFIX)), said
    )

    # The first start shows the admin key on a terminal only: a log has the path of its file.
    shown = [
        line for line in said.texts["log of api"].splitlines() if line.startswith("First start: ")
    ]
    assert len(shown) == 1 and "admin-key" in shown[0]

    found = {
        name: places for name, secret in hunted.items() if (places := said.find_places(secret))
    }
    # What stands in a field of a request and is no key, is told to its sender ("found …"), and to
    # nobody else.
    assert found.pop("Field") == ["problems"]
    del hunted["Field"]
    assert found == {}
    for place in (
        "log of api",
        "log of one",
        "log of wrong",
        "command line of api",
        "table audit",
        "store",
    ):
        assert said.texts[place].strip(), f"nothing was searched of {place}"
    # The search finds each secret once it is added to a place.
    for name, secret in hunted.items():
        said.add("log of api", f'{{"event": "careless", "value": "x{secret}y"}}\n')
        assert "log of api" in said.find_places(secret), name
    size = sum(len(text) for text in said.texts.values())
    print(f"{len(hunted)} secrets, {len(said.texts)} places, {size} characters: none found")


def _collect_texts(large: LargeSize, store: ObjectStorage, said: Said) -> None:
    """Read command lines, rows, small objects of the store and logs."""
    for name, process in large.processes.items():
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                said.add(f"command line of {name}", " ".join(one.cmdline()) + "\n")
    for table in TABLES:
        said.add(f"table {table}", "\n".join(str(row) for row in large.rows(f"TABLE {table}")))
    for info in store.list(""):
        if info.size < 1 << 20:
            said.add("store", b"".join(store.read(info.key)).decode("latin-1"))
    for log in large.folder.rglob("*log"):
        said.add(f"log of {log.parent.name}", log.read_text(errors="replace"))


def _learn_and_read(client: Rest, said: Said) -> dict[str, str]:
    """Learn a batch and read its answers.
    Return the signature of a presigned URL, which is a secret.
    """
    small.create_small_model(client, "birds", "er")
    (job,) = small.learn_batches(client, "birds", small.WEEKS[0])
    with client.http.stream(
        "GET", f"/v1/jobs/{job.id}/events", headers={"Accept": "text/event-stream"}
    ) as got:
        said.add("event stream", b"".join(got.iter_bytes()).decode())
    for path in (
        f"/v1/jobs/{job.id}",
        f"/v1/jobs/{job.id}/logs",
        "/v1/models/birds/versions/1",
        "/v1/keys",
        "/v1/audit",
    ):
        said.add("answers", client.call("GET", path).text)
    client.call("GET", "/v1/models/birds/versions/1/download")
    sent = client.call("GET", "/v1/models/birds/versions/1/download?redirect=1")
    assert sent.status_code == 307
    # A changed signature is refused, and the refusal is the store's alone.
    signature = parse_qs(urlsplit(sent.headers["location"]).query)["X-Amz-Signature"][0]
    return {"Signature": signature}


def _send_wrong_requests(url: str, key: str, said: Said) -> dict[str, str]:
    """Send invalid requests with secrets in wrong places; return those secrets."""
    made = {name: make_canary(name) for name in ("Bearer", "Basic", "Cookie", "Field")}
    lookalike = f"pk_abcdefghijkl_{secrets.token_urlsafe(32)}"
    good = {"Authorization": f"Bearer {key}"}
    tries: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/v1/models", {"headers": {"Authorization": f"Bearer {made['Bearer']}"}}),
        ("GET", "/v1/models", {"headers": {"Authorization": f"Basic {made['Basic']}"}}),
        ("GET", "/v1/models", {"headers": {"Authorization": f"Bearer {lookalike}"}}),
        (
            "GET",
            "/v1/models",
            {"headers": {**good, "Cookie": f"session={made['Cookie']}", "Accept": "x"}},
        ),
        ("GET", f"/v1/models/{lookalike}", {"headers": good}),
        ("GET", f"/v1/models/{key}", {"headers": good}),
        ("GET", f"/v1/jobs?state={key}", {"headers": good}),
        ("GET", f"/v1/jobs?{key}=1", {"headers": good}),
        ("POST", "/v1/models", {"headers": good, "json": {"name": "n", "scenario": made["Field"]}}),
        ("POST", "/v1/models", {"headers": good, "json": {"name": "n", key: 1}}),
        ("POST", "/v1/models", {"headers": {**good, "Idempotency-Key": key * 5}, "json": {}}),
        ("POST", "/v1/keys", {"headers": good, "json": {"name": key}}),
        (
            "POST",
            "/v1/models/birds/tasks",
            {"headers": {**good, "Perennial-Recipe": made["Field"]}},
        ),
    ]
    for method, path, more in tries:
        answer = httpx2.request(method, url + path, **more)
        assert answer.status_code >= 400 or "Cookie" in more["headers"], (
            f"{method} {path} {answer.text}"
        )
        said.add("problems", answer.text + str(answer.headers) + "\n")
    return {**made, "Lookalike": lookalike.split("_", 2)[2]}


def _start_with_wrong_passwords(
    large: LargeSize, password: str, wrong: dict[str, str], said: Said
) -> None:
    """Start processes beside the service with passwords that are refused.
    The database of one of them does not exist.
    """
    right = large.environment
    nowhere = make_url(right["PERENNIAL_DATABASE_URL"]).set(
        port=service.find_free_port(), password=wrong["WrongDatabase"]
    )
    refused = {
        "PERENNIAL_STORE_SECRET_KEY": wrong["WrongStore"],
        "PERENNIAL_BROKER_URL": right["PERENNIAL_BROKER_URL"].replace(
            password, wrong["WrongRedis"]
        ),
    }
    absent = {"PERENNIAL_DATABASE_URL": nowhere.render_as_string(hide_password=False)}
    folder = large.data("wrong")
    folder.mkdir()
    service.link_shared_test_catalogue(folder)
    started: list[tuple[psutil.Popen, Path]] = []
    port = service.find_free_port()
    for name, environment in (("refused", refused), ("absent", absent)):
        settings = {**os.environ, **right, **environment, "PERENNIAL_DATA_DIR": str(folder)}
        commands = {
            "api": build_api_command(port if name == "refused" else service.find_free_port())
        }
        if name == "refused":  # a worker reaches its database by the functions of the API
            commands["worker"] = build_worker_command(f"wrong-{name}-{port}")
        for which, command in commands.items():
            log = folder / f"{name}-{which}-log"
            with log.open("ab") as out:
                process = psutil.Popen(
                    command, cwd=service.ROOT, env=settings, stdout=out, stderr=out
                )
            started.append((process, log))
    try:
        large.until(lambda: _is_reported_down(f"http://127.0.0.1:{port}", said))
        for process, log in started[1:]:
            large.until(lambda process=process, log=log: _is_complaining(process, log))
    finally:
        for process, _ in started:
            with suppress(psutil.NoSuchProcess):
                for one in (*process.children(recursive=True), process):
                    said.add("command line of wrong", " ".join(one.cmdline()) + "\n")
            if process.poll() is None:
                process.kill()
            process.wait()


def _is_reported_down(url: str, said: Said) -> bool:
    """Return whether an API whose passwords are refused listens; it must report the problem."""
    try:
        answer = httpx2.get(f"{url}/readyz", timeout=60)
    except httpx2.TransportError:
        return False  # not listening yet
    assert answer.json()["store"] == answer.json()["broker"] == "down"
    said.add("problems", answer.text)
    return True


def _is_complaining(process: psutil.Popen, log: Path) -> bool:
    """Return whether a process has written what it lacks, or has ended."""
    words = ("Cannot connect", "connection failed")
    return process.poll() is not None or any(
        word in log.read_text(errors="replace") for word in words
    )
