"""No secret leaves the service: canaries are its secrets, and nothing that it writes or says holds one.

The service runs in its large size with unmistakable passwords, does its work, is asked wrong things with
secrets in wrong places, and stands beside processes whose passwords are refused. Then all that it wrote is
searched: logs, command lines, rows, the store's small objects, problems, metrics.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import large_size
import psutil
import psycopg
import pytest
import redis
import redis_server as redis_servers
import s3_server
from large_size import LargeSize, api_command, worker_command
from sqlalchemy.engine import make_url

from core.store import open_store
from tests.rest import Rest
from tools import digits, service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services("postgresql", "redis", "s3"),
    pytest.mark.timeout(300),
]

TABLES = ("events", "audit", "jobs", "tasks", "versions", "models", "alias_moves", "keys")
WRONG_S = 8.0
"""How long processes with wrong passwords get to say so; they are ended then."""


def canary(what: str) -> str:
    return f"Canary{what}{secrets.token_hex(8)}"


class Said:
    """What the service wrote and said, by where."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, where: str, text: str) -> None:
        self.texts[where] = self.texts.get(where, "") + text

    def places(self, secret: str) -> list[str]:
        return [where for where, text in self.texts.items() if secret in text]


@pytest.fixture
def passwords(postgres_url: str) -> Iterator[dict[str, str]]:
    """The canaries; the database has a role with one of them."""
    made = {name: canary(name) for name in ("Database", "Redis", "WrongDatabase", "WrongRedis", "WrongStore")}
    url = make_url(postgres_url)
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    role = f"canary_{secrets.token_hex(4)}"
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{made['Database']}'".encode())
        connection.execute(f'ALTER DATABASE "{url.database}" OWNER TO {role}'.encode())
    made["database_url"] = url.set(username=role, password=made["Database"]).render_as_string(
        hide_password=False
    )
    yield made
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER".encode())
        connection.execute(f"DROP OWNED BY {role}".encode())
        connection.execute(f"DROP ROLE {role}".encode())


@pytest.fixture
def broker(passwords: dict[str, str]) -> Iterator[str]:
    """A Redis that wants a password."""
    server = redis_servers.RedisServer()
    server.start()
    with redis.Redis.from_url(server.url) as admin:
        admin.config_set("requirepass", passwords["Redis"])
    yield server.url.replace("redis://", f"redis://:{passwords['Redis']}@")
    server.close()


def test_no_secret_is_written_or_said(
    tmp_path: Path, passwords: dict[str, str], broker: str, s3: Any
) -> None:
    said = Said()
    hunted = {**passwords, "Store": s3_server.SECRET_KEY}
    del hunted["database_url"]
    settings = {"PERENNIAL_MAX_REQUESTS_PER_S": "1000", "PERENNIAL_LEASE_S": "2"}
    with large_size.running(tmp_path, passwords["database_url"], broker, s3, **settings) as (large, client):
        hunted["AdminKey"] = (large.data("api") / "admin-key").read_text().strip()
        hunted["AdminKeySecret"] = hunted["AdminKey"].split("_", 2)[2]
        user = client.call("POST", "/v1/keys", json={"name": "u", "owner": "user", "scope": "write"}).json()
        hunted["UserKey"] = user["secret"].split("_", 2)[2]
        hunted |= _work(client, said)
        hunted |= _wrong_requests(large.url, user["secret"], said)
        _wrong_passwords(large, passwords, said)
        said.add("/metrics", client.call("GET", "/metrics").text)
        for name, process in large.processes.items():
            for one in (process, *process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    said.add(f"command line of {name}", " ".join(one.cmdline()) + "\n")
        for table in TABLES:
            said.add(f"table {table}", "\n".join(str(row) for row in large.rows(f"TABLE {table}")))
        store = open_store(s3.settings(tmp_path))
        for info in store.list(""):
            if info.size < 1 << 20:
                said.add("store", b"".join(store.read(info.key)).decode("latin-1"))
    for log in tmp_path.rglob("log"):
        said.add(f"log of {log.parent.name}", log.read_text(errors="replace"))

    # The first start shows the admin key on a terminal only: a log has the path of its file.
    shown = [line for line in said.texts["log of api"].splitlines() if line.startswith("First start: ")]
    assert len(shown) == 1 and "admin-key" in shown[0]

    found = {name: places for name, secret in hunted.items() if (places := said.places(secret))}
    # What stands in a field of a request and is no key, is told to its sender ("found …"), and to nobody else.
    assert found.pop("Field") == ["problems"]
    del hunted["Field"]
    assert found == {}
    for place in ("log of api", "log of one", "log of wrong", "command line of api", "table audit", "store"):
        assert said.texts[place].strip(), f"nothing was searched of {place}"
    # The search can find: the same places with a line more.
    for name, secret in hunted.items():
        said.add("log of api", f'{{"event": "careless", "value": "x{secret}y"}}\n')
        assert "log of api" in said.places(secret), name
    size = sum(len(text) for text in said.texts.values())
    print(f"{len(hunted)} secrets, {len(said.texts)} places, {size} characters: none found")


def _work(client: Rest, said: Said) -> dict[str, str]:
    """What the service is for, once; the signature of a presigned URL is a secret of it."""
    client.models.create("birds", recipe={"method": "er", "epochs": 1}, architecture="small-cnn")
    job = client.submit("birds", digits.archives()[0][1])
    assert client.wait(job).state == "succeeded"
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


def _wrong_requests(url: str, key: str, said: Said) -> dict[str, str]:
    """Requests that fail, with secrets where they do not belong."""
    made = {name: canary(name) for name in ("Bearer", "Basic", "Cookie", "Field")}
    lookalike = f"pk_abcdefghijkl_{secrets.token_urlsafe(32)}"
    good = {"Authorization": f"Bearer {key}"}
    tries: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/v1/models", {"headers": {"Authorization": f"Bearer {made['Bearer']}"}}),
        ("GET", "/v1/models", {"headers": {"Authorization": f"Basic {made['Basic']}"}}),
        ("GET", "/v1/models", {"headers": {"Authorization": f"Bearer {lookalike}"}}),
        ("GET", "/v1/models", {"headers": {**good, "Cookie": f"session={made['Cookie']}", "Accept": "x"}}),
        ("GET", f"/v1/models/{lookalike}", {"headers": good}),
        ("GET", f"/v1/models/{key}", {"headers": good}),
        ("GET", f"/v1/jobs?state={key}", {"headers": good}),
        ("GET", f"/v1/jobs?{key}=1", {"headers": good}),
        ("POST", "/v1/models", {"headers": good, "json": {"name": "n", "scenario": made["Field"]}}),
        ("POST", "/v1/models", {"headers": good, "json": {"name": "n", key: 1}}),
        ("POST", "/v1/models", {"headers": {**good, "Idempotency-Key": key * 5}, "json": {}}),
        ("POST", "/v1/keys", {"headers": good, "json": {"name": key}}),
        ("POST", "/v1/models/birds/tasks", {"headers": {**good, "Perennial-Recipe": made["Field"]}}),
    ]
    for method, path, more in tries:
        answer = httpx2.request(method, url + path, **more)
        assert answer.status_code >= 400 or "Cookie" in more["headers"], f"{method} {path} {answer.text}"
        said.add("problems", answer.text + str(answer.headers) + "\n")
    return {**made, "Lookalike": lookalike.split("_", 2)[2]}


def _wrong_passwords(large: LargeSize, passwords: dict[str, str], said: Said) -> None:
    """Processes beside the service, with passwords that are refused and a database that is not there."""
    closed = service.free_port()
    right = make_url(passwords["database_url"])
    wrong = {
        "store and broker": {
            "PERENNIAL_STORE_SECRET_KEY": passwords["WrongStore"],
            "PERENNIAL_BROKER_URL": large.environment["PERENNIAL_BROKER_URL"].replace(
                passwords["Redis"], passwords["WrongRedis"]
            ),
        },
        "database": {
            "PERENNIAL_DATABASE_URL": right.set(
                port=closed, password=passwords["WrongDatabase"]
            ).render_as_string(hide_password=False)
        },
    }
    folder = large.data("wrong")
    folder.mkdir()
    for name, environment in wrong.items():
        port = service.free_port()
        settings = {**os.environ, **large.environment, **environment, "PERENNIAL_DATA_DIR": str(folder)}
        commands = [api_command(port), worker_command(f"wrong{port}")]
        with (folder / "log").open("ab") as log:
            started = [
                psutil.Popen(command, cwd=service.ROOT, env=settings, stdout=log, stderr=log)
                for command in commands
            ]
        try:
            if name == "database":
                psutil.wait_procs(started, WRONG_S)
            else:
                _refused_by_the_store(f"http://127.0.0.1:{port}", said)
        finally:
            for process in started:
                with suppress(psutil.NoSuchProcess):
                    for one in (*process.children(recursive=True), process):
                        said.add("command line of wrong", " ".join(one.cmdline()) + "\n")
                if process.poll() is None:
                    process.kill()
                process.wait()


def _refused_by_the_store(url: str, said: Said) -> None:
    end = time.monotonic() + 60
    while True:
        assert time.monotonic() < end, "the API with a wrong store key does not listen"
        with suppress(httpx2.TransportError):
            answer = httpx2.get(f"{url}/readyz", timeout=30)
            assert answer.json()["store"] == answer.json()["broker"] == "down"
            said.add("problems", answer.text)
            break
        time.sleep(0.1)
