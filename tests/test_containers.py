"""The container files, judged without an engine: schemas, linters, and what must not change unseen."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
COMPOSE = ROOT / "docker-compose.yml"
COMPOSE_FILES = [COMPOSE, ROOT / "tests" / "services" / "docker-compose.yml"]
PASSWORDS = {"POSTGRES_PASSWORD": "one", "STORE_SECRET_KEY": "two"}


def _run(*command: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    bare = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        command, cwd=ROOT, env=bare | environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return loaded


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.parent.name)
def test_the_compose_file_fits_the_compose_specification(path: Path) -> None:
    done = _run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_passes_its_linter() -> None:
    done = _run("hadolint", "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_docker_compose_reads_the_file_where_it_is_installed() -> None:
    if shutil.which("docker-compose") is None:
        return  # the schema above is the check that needs nothing installed
    done = _run("docker-compose", "-f", "docker-compose.yml", "config", "-q", **PASSWORDS)
    assert done.returncode == 0, done.stderr


def test_compose_starts_nothing_without_passwords() -> None:
    text = COMPOSE.read_text()
    for name in PASSWORDS:
        assert re.findall(rf"\$\{{{name}(.)", text), name
        assert set(re.findall(rf"\$\{{{name}(.)", text)) == {":"}, f"{name} has a use without `:?`"
        assert f"${{{name}:-" not in text
        assert f"\n{name}=\n" in (ROOT / ".env.example").read_text()


def test_every_image_is_pinned_to_a_version(compose: dict[str, Any]) -> None:
    images = {name: service["image"] for name, service in compose["services"].items()}
    for name in ("postgres", "redis", "minio"):
        tag = images[name].removesuffix("}").rpartition(":")[2]
        assert re.search(r"\d+\.\d+|RELEASE\.\d{4}-\d\d-\d\d", tag), images[name]


def test_the_python_of_the_image_has_the_tar_and_zip_fixes() -> None:
    version = re.search(
        r"^ARG PYTHON_IMAGE=python:3\.11\.(\d+)-slim-", (ROOT / "Dockerfile").read_text(), re.M
    )
    assert version is not None and int(version[1]) >= 14


def test_every_long_running_service_has_a_health_check_and_volumes(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name == "migrate":
            assert service["restart"] == "no"
            continue
        assert service["healthcheck"]["test"], name
        assert service["volumes"], name
        assert service["restart"] == "unless-stopped", name


def test_only_the_api_is_published_and_only_locally_by_default(compose: dict[str, Any]) -> None:
    published = {
        name: service["ports"] for name, service in compose["services"].items() if "ports" in service
    }
    assert published == {"api": ["${PERENNIAL_PUBLISH:-127.0.0.1:8000}:8000"]}


def test_the_commands_are_those_of_the_documentation(compose: dict[str, Any]) -> None:
    def command(name: str) -> str:
        return " ".join(compose["services"][name]["command"])

    worker = "celery -A worker.celery_app worker -P solo --without-gossip --without-mingle"
    assert command("migrate") == "alembic upgrade head"
    assert command("api").startswith("uvicorn --factory api.app:create_app --host 0.0.0.0")
    assert command("api") in (ROOT / "README.md").read_text().splitlines()
    assert command("worker").startswith(worker) and command("worker-gpu").startswith(worker)


def test_gpus_are_reserved_only_under_their_profile(compose: dict[str, Any]) -> None:
    reserving = {name for name, service in compose["services"].items() if "deploy" in service}
    assert reserving == {"worker-gpu"}
    assert compose["services"]["worker-gpu"]["profiles"] == ["gpu"]


def test_redis_never_evicts_and_keeps_a_log(compose: dict[str, Any]) -> None:
    command = " ".join(compose["services"]["redis"]["command"])
    assert "--maxmemory-policy noeviction" in command and "--appendonly yes" in command


def test_the_compose_file_fixes_no_project_name(compose: dict[str, Any]) -> None:
    assert "name" not in compose


def test_everything_that_the_dockerfile_copies_is_in_the_build_context() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    sources = {source for line in copied for source in line.split()}
    assert sources == allowed
    for source in sources:
        assert (ROOT / source).exists(), source


def test_the_image_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)", (ROOT / "Dockerfile").read_text(), re.M)
    assert users == ["10001:10001"]


@pytest.fixture
def health() -> Any:
    spec = importlib.util.spec_from_file_location("deploy_health", ROOT / "deploy" / "health.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_worker_is_healthy_while_its_file_is_young(
    health: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path))
    with pytest.raises(OSError, match="worker-alive"):
        health.worker()
    touched = tmp_path / "worker-alive"
    touched.touch()
    health.worker()
    os.utime(touched, (touched.stat().st_mtime - 120,) * 2)
    with pytest.raises(OSError, match="last touched"):
        health.worker()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_an_api_is_healthy_while_healthz_succeeds(
    health: Any, monkeypatch: pytest.MonkeyPatch, status: int, healthy: bool
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    monkeypatch.setenv("PERENNIAL_PORT", str(server.server_port))
    if healthy:
        health.api()
    else:
        with pytest.raises(OSError, match="503"):
            health.api()
    server.server_close()
