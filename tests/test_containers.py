"""The container files, judged without an engine: schemas, linters, and what must not
change unseen.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
import yaml
from processes import wait_for_port

from core.jobs.worker_notification import _NotificationBroker
from core.settings import Settings
from tests.loading import load_module
from tools.release import distributions
from tools.service import find_free_port
from worker.recurring_tasks import get_lost_device_report_file

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
COMPOSE = ROOT / "docker-compose.yml"
COMPOSE_FILES = [COMPOSE, ROOT / "tests" / "services" / "docker-compose.yml"]
SECRETS = {
    "postgres-password",
    "redis-password",
    "store-root-password",
    "store-secret-key",
    "webhook-key",
}


def _run_command(*command: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    bare = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=bare | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return loaded


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.parent.name)
def test_the_compose_file_fits_the_compose_specification(path: Path) -> None:
    done = _run_command("check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem
)
def test_the_workflow_fits_the_schema_of_workflows(path: Path) -> None:
    done = _run_command("check-jsonschema", "--builtin-schema", "vendor.github-workflows", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_release_tests_each_supported_python_and_needs_all_of_it() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    jobs = workflow["jobs"]
    low, high = re.findall(r"3\.(\d+)", project["requires-python"])
    supported = [f"3.{minor}" for minor in range(int(low), int(high))]
    assert jobs["install"]["strategy"]["matrix"]["python"] == supported
    assert {*jobs["publish"]["needs"]} == jobs.keys() - {"publish"}
    assert workflow["permissions"] == {"contents": "read"}, "only `publish` writes"
    assert jobs["publish"]["permissions"] == {"contents": "write"}


def test_the_dockerfile_passes_its_linter() -> None:
    done = _run_command("hadolint", "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_docker_compose_reads_the_file_where_it_is_installed() -> None:
    if shutil.which("docker-compose") is None:
        return  # the schema above is the check that needs nothing installed
    done = _run_command("docker-compose", "-f", "docker-compose.yml", "config", "-q")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The folder that `deploy/secrets.sh` makes."""
    done = subprocess.run(["sh", ROOT / "deploy" / "secrets.sh"], cwd=tmp_path, check=False)
    assert done.returncode == 0
    return tmp_path / "secrets"


def test_compose_has_no_password_but_in_files_that_one_command_makes(
    compose: dict[str, Any], secrets: Path
) -> None:
    assert compose["secrets"] == {name: {"file": f"./secrets/{name}"} for name in SECRETS}
    made = {path.name: path.read_text() for path in secrets.iterdir()}
    assert made.keys() == SECRETS and len(set(made.values())) == len(SECRETS)
    assert all(re.fullmatch(r"[0-9a-f]{48}", text) for text in made.values())
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    # Users of the containers read them past the folder.
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets.iterdir()} == {0o644}
    assert "/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    text = COMPOSE.read_text() + (ROOT / ".env.example").read_text()
    named = re.findall(r"^(?!#)[^#\n]*?(\w*(?:PASSWORD|SECRET_KEY)\w*)[:=]", text, re.M)
    assert named and all(name.endswith("_FILE") for name in named), named


def test_making_passwords_again_changes_none(secrets: Path) -> None:
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    subprocess.run(["sh", ROOT / "deploy" / "secrets.sh"], cwd=secrets.parent, check=True)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before


def test_each_container_sees_only_the_passwords_that_it_needs(compose: dict[str, Any]) -> None:
    seen = {name: set(service.get("secrets", [])) for name, service in compose["services"].items()}
    ours = {"postgres-password", "redis-password", "store-secret-key", "webhook-key"}
    assert seen == {
        **dict.fromkeys(("migrate", "api", "worker", "worker-gpu", "worker-gpu-1"), ours),
        "postgres": {"postgres-password"},
        "redis": {"redis-password"},
        "minio": {"store-root-password"},
        "store-account": {"store-root-password", "store-secret-key"},
    }


def test_the_environment_of_our_containers_is_what_the_settings_read(
    compose: dict[str, Any], secrets: Path
) -> None:
    given = compose["services"]["api"]["environment"]
    own = {
        name.removeprefix("PERENNIAL_").lower(): re.sub(
            r"\$\{\w+:-(.*?)\}", r"\1", value.replace("/run/secrets", str(secrets))
        )
        for name, value in given.items()
    }
    assert own.keys() <= Settings.model_fields.keys()
    settings = Settings(**own)
    password = (secrets / "postgres-password").read_text()
    assert (
        settings.resolved_database_url
        == f"postgresql+psycopg://perennial:{password}@postgres:5432/perennial"
    )
    assert (
        settings.broker_url_with_password
        == f"redis://:{(secrets / 'redis-password').read_text()}@redis:6379/0"
    )
    assert settings.resolved_store_secret_key == (secrets / "store-secret-key").read_text()


@pytest.mark.slow
@pytest.mark.services("redis")
def test_redis_wants_its_password_which_no_command_line_shows(
    compose: dict[str, Any], secrets: Path, tmp_path: Path
) -> None:
    """The container's own command and health check, beside a Redis of this machine."""
    assert shutil.which("redis-server"), "this test runs a Redis of its own: install redis-server"
    service, port = compose["services"]["redis"], find_free_port()

    def replace_secret_paths(text: str) -> str:
        return text.replace("$$", "$").replace("/run/secrets", str(secrets))

    script = replace_secret_paths(service["command"][-1]).replace(
        "redis-server -", f"redis-server - --port {port}", 1
    )
    process = subprocess.Popen(
        [*service["command"][:-1], script], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    try:
        settings = Settings(
            broker_url=f"redis://127.0.0.1:{port}/0",
            broker_password_file=secrets / "redis-password",
        )
        wait_for_port(process, port, tmp_path / "none")
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        assert redis.Redis.from_url(settings.broker_url_with_password).ping()
        assert _NotificationBroker(settings.broker_url_with_password).send_notification(), (
            "a ring arrives"
        )
        kind, check = service["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        check = replace_secret_paths(check).replace("redis-cli", f"redis-cli -p {port}")
        assert (
            subprocess.run(["sh", "-c", check], check=False, stderr=subprocess.DEVNULL).returncode
            == 0
        )
        shown = " ".join(psutil.Process(process.pid).cmdline())
        assert (secrets / "redis-password").read_text() not in shown
        (secrets / "redis-password").write_text("wrong")
        assert (
            subprocess.run(["sh", "-c", check], check=False, stderr=subprocess.DEVNULL).returncode
            != 0
        )
        assert psutil.Process(process.pid).name() == "redis-server", "it gets the signals itself"
    finally:
        process.terminate()
        process.wait(60)


def test_the_account_of_the_store_may_use_its_bucket_and_nothing_else(
    compose: dict[str, Any],
) -> None:
    policy = json.loads((ROOT / "deploy" / "store-policy.json").read_text())
    bucket = (
        compose["services"]["api"]["environment"]["PERENNIAL_STORE_URL"]
        .split("/")[3]
        .partition("?")[0]
    )
    resources = {resource for one in policy["Statement"] for resource in one["Resource"]}
    assert resources == {f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"}
    actions = {action for one in policy["Statement"] for action in one["Action"]}
    assert not any("*" in action for action in actions)
    assert actions == {
        "s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:AbortMultipartUpload",
        "s3:DeleteObject", "s3:GetObject", "s3:ListMultipartUploadParts", "s3:PutObject",
    }  # fmt: skip
    assert compose["services"]["minio"]["environment"]["MINIO_ROOT_USER"] != "perennial"


FAKE_MC = """#!/bin/sh
echo "$MC_HOST_root | $*" >>"{log}"
case "$*" in
"admin user add"*) cat >>"{log}" ;;
"admin policy attach"*) echo "mc: <ERROR> {answer}" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("answer", "status"),
    [("The specified policy change is already in effect.", 0), ("Unable to connect.", 1)],
)
def test_the_account_is_made_as_often_as_one_likes_and_its_key_is_on_no_command_line(
    secrets: Path, tmp_path: Path, answer: str, status: int
) -> None:
    log, programs = tmp_path / "log", tmp_path / "bin"
    programs.mkdir()
    (programs / "mc").write_text(FAKE_MC.format(log=log, answer=answer))
    (programs / "mc").chmod(0o755)
    script = (ROOT / "deploy" / "store.sh").read_text().replace("/run/secrets", str(secrets))
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", script], env=environment, stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == status, done.stderr
    root, own = (
        (secrets / name).read_text() for name in ("store-root-password", "store-secret-key")
    )
    lines = log.read_text().splitlines()
    assert [line.partition(" | ")[2] for line in lines if " | " in line] == [
        "mb --ignore-existing root/perennial",
        "admin policy create root perennial /deploy/store-policy.json",
        "admin user add root perennial",
        "admin policy attach root perennial --user perennial",
    ]
    assert own in lines, "over standard input"
    assert all(
        line.startswith(f"http://root:{root}@minio:9000 | ") for line in lines if " | " in line
    )


def test_every_image_is_pinned_to_a_version(compose: dict[str, Any]) -> None:
    images = {name: service["image"] for name, service in compose["services"].items()}
    for name in ("postgres", "redis", "minio", "store-account"):
        tag = images[name].removesuffix("}").rpartition(":")[2]
        assert re.search(r"\d+\.\d+|RELEASE\.\d{4}-\d\d-\d\d", tag), images[name]


def test_the_python_of_the_image_has_the_tar_and_zip_fixes() -> None:
    version = re.search(
        r"^ARG PYTHON_IMAGE=python:3\.11\.(\d+)-slim-", (ROOT / "Dockerfile").read_text(), re.M
    )
    assert version is not None and int(version[1]) >= 14


def test_every_long_running_service_has_a_health_check_and_volumes(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name in ("migrate", "store-account"):
            assert service["restart"] == "no"
            continue
        assert service["healthcheck"]["test"], name
        assert service["volumes"], name
        assert service["restart"] == "unless-stopped", name


def test_only_the_api_is_published_and_only_locally_by_default(compose: dict[str, Any]) -> None:
    published = {
        name: service["ports"]
        for name, service in compose["services"].items()
        if "ports" in service
    }
    assert published == {"api": ["${PERENNIAL_PUBLISH:-127.0.0.1:8000}:8000"]}


def test_the_commands_are_those_of_the_documentation(compose: dict[str, Any]) -> None:
    def join_command(name: str) -> str:
        return " ".join(compose["services"][name]["command"])

    worker = (
        "celery -A perennial_service.celery_app worker -P solo --without-gossip --without-mingle"
    )
    assert join_command("migrate") == "perennial migrate"
    assert join_command("api").startswith(
        "uvicorn --factory perennial_service.asgi:create_app --host 0.0.0.0"
    )
    assert (
        join_command("api")
        in (ROOT / "docs" / "howto" / "run-at-the-large-size.md").read_text().splitlines()
    )
    assert join_command("worker").startswith(worker) and join_command("worker-gpu").startswith(
        worker
    )


def test_gpus_are_reserved_under_their_profiles_and_each_worker_sees_one(
    compose: dict[str, Any],
) -> None:
    reserving = {
        name: service for name, service in compose["services"].items() if "deploy" in service
    }
    assert {name: service["profiles"] for name, service in reserving.items()} == {
        "worker-gpu": ["gpu"],
        "worker-gpu-1": ["two-gpus"],
    }
    for service in reserving.values():
        assert service["environment"]["PERENNIAL_DEVICE"] == "cuda"
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    visible = [service["environment"]["CUDA_VISIBLE_DEVICES"] for service in reserving.values()]
    assert sorted(visible) == ["0", "1"]


def test_images_are_of_the_torch_for_their_device(compose: dict[str, Any]) -> None:
    services = compose["services"]
    index = "https://download.pytorch.org/whl"
    for name, image, default in (
        ("api", "perennial:0.1.0", f"${{TORCH_INDEX:-{index}/cpu}}"),
        ("worker", "perennial:0.1.0", f"${{TORCH_INDEX:-{index}/cpu}}"),
        ("worker-gpu", "perennial:0.1.0-cuda", f"${{TORCH_INDEX_CUDA:-{index}/cu130}}"),
        ("worker-gpu-1", "perennial:0.1.0-cuda", f"${{TORCH_INDEX_CUDA:-{index}/cu130}}"),
    ):
        assert services[name]["image"] == image
        assert services[name]["build"]["args"] == {"TORCH_INDEX": default}
    assert f"ARG TORCH_INDEX={index}/cpu\n" in (ROOT / "Dockerfile").read_text()


def test_redis_never_evicts_and_keeps_a_log(compose: dict[str, Any]) -> None:
    command = " ".join(compose["services"]["redis"]["command"])
    assert compose["services"]["redis"]["user"] == "redis"
    assert "--maxmemory-policy noeviction" in command and "--appendonly yes" in command


def test_no_container_takes_all_memory_of_its_machine(compose: dict[str, Any]) -> None:
    assert {
        name for name, service in compose["services"].items() if "mem_limit" not in service
    } == set()


def test_a_job_has_less_memory_than_its_workers_container(compose: dict[str, Any]) -> None:
    limit = (
        compose["services"]["worker"]["mem_limit"].removeprefix("${WORKER_MEMORY:-").rstrip("g}")
    )
    job = compose["services"]["api"]["environment"]["PERENNIAL_JOB_MEMORY_BYTES"]
    assert job == compose["services"]["worker"]["environment"]["PERENNIAL_JOB_MEMORY_BYTES"]
    assert int(job.removeprefix("${JOB_MEMORY_BYTES:-").rstrip("}")) <= (int(limit) << 30) - (
        1 << 30
    )


def test_the_compose_file_fixes_no_project_name(compose: dict[str, Any]) -> None:
    assert "name" not in compose


def test_everything_that_the_dockerfile_copies_is_in_the_build_context() -> None:
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    sources = {source for line in copied for source in line.split()}
    assert {s for s in sources if not {s, *map(str, Path(s).parents)} & allowed} == set()
    assert allowed <= sources
    for source in sources:
        assert (ROOT / source).exists(), source


def test_the_image_is_built_from_the_wheels_of_a_release() -> None:
    stage = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.M)[2]
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", stage, re.M) for name in line.split()}
    assert copied == {*distributions.SERVICE, *distributions.DOCUMENTS, distributions.CLIENT}
    assert "RUN python -m tools.release.distributions --wheels --out /wheels\n" in stage


def test_the_image_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)", (ROOT / "Dockerfile").read_text(), re.M)
    assert users == ["10001:10001"]


@pytest.fixture
def health() -> Any:
    return load_module(ROOT / "deploy" / "health.py")


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


def test_a_worker_whose_device_is_lost_is_not_healthy_and_the_check_says_why(
    health: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path))
    (tmp_path / "worker-alive").touch()
    healthy, lost = (
        get_lost_device_report_file(tmp_path, f"host-7-{token}") for token in ("a1", "b2")
    )
    assert healthy != lost
    lost.write_text("w1: uncorrectable ECC error")
    with pytest.raises(OSError, match="device lost: w1: uncorrectable ECC error"):
        health.worker()
    os.utime(lost, (lost.stat().st_mtime - 120,) * 2)  # of a worker that is gone
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
