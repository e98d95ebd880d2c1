"""`perennial serve --demo` from its first start to its reset, as a person runs it."""

import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from core.packaged import sample_pictures
from perennial import Perennial
from tests.e2e import small
from tests.own_commands import make_environment
from tools import serve_demo
from tools.service import RunningService, find_free_port

WAIT_S = 240.0


class Started:
    """A started demo: its process, its address, and what it has printed."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, output: Path) -> None:
        self.process, self.url, self._output = process, url, output

    def wait_for(self, text: str) -> str:
        """Wait until the demo has printed a text; return all that it has printed."""
        deadline = time.monotonic() + WAIT_S
        while text not in (printed := self._output.read_text()):
            assert self.process.poll() is None, printed
            assert time.monotonic() < deadline, printed
            time.sleep(0.1)
        return printed


@contextmanager
def start_demo(folder: Path, own: dict[str, str], *options: str) -> Iterator[Started]:
    """Start the demo beside the data directory of another service, whose settings it inherits."""
    port = find_free_port()
    output = folder / f"output-{time.monotonic_ns()}"
    command = [str(Path(own["PATH"].split(":")[0]) / "perennial"), "serve", "--demo"]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--no-browser", "--port", str(port), *options],
            env=own,
            cwd=folder,
            stdout=file,
            stderr=file,
        )
    try:
        yield Started(process, f"http://127.0.0.1:{port}", output)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0, output.read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with the data directory of another service."""
    (tmp_path / "perennial-data").mkdir()
    (tmp_path / "perennial-data" / "perennial.db").write_bytes(b"of another service")
    return tmp_path


@pytest.fixture
def own(folder: Path) -> dict[str, str]:
    other = {
        "PERENNIAL_DATA_DIR": str(folder / "perennial-data"),
        "PERENNIAL_DATABASE_URL": f"sqlite:///{folder}/perennial-data/perennial.db",
        "PERENNIAL_BROKER_URL": "redis://127.0.0.1:1",
    }
    return {**make_environment(folder / "own"), **other}


def check_whole_demo(url: str, key: str = "pk_none", share: int = 1) -> None:
    """Check what a visitor of a complete demo finds: a held version, its flips, and a rollback.

    Args:
        share: a model that learned each second picture has 2.
    """
    with Perennial(key, base_url=url) as client:
        model = client.models.retrieve(sample_pictures.MODEL)
        [waiting] = model.attention
        assert (waiting.kind, waiting.version, model.aliases["production"]) == ("held", 4, 3)
        flips = client.versions.compare(model.id, 3, 4).totals
        assert flips.negative > 60 / share and flips.positive == 0
        causes = [move.cause for move in client.aliases.history(model.id)]
        assert causes == ["create", "publish", "publish", "rollback", "set", "publish"]
        assert min(client.metrics.retrieve(model.id).accuracy_matrix[3][:3]) > 0.8
    page = httpx2.get(
        f"{url}/ui/models/{model.id}/compare?a=3&b=4",
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
    )
    assert page.status_code == 200 and "Version 4 beside version 3" in page.text


def check_other_untouched(folder: Path) -> None:
    data = folder / "perennial-data"
    assert [path.name for path in data.iterdir()] == ["perennial.db"]
    assert (data / "perennial.db").read_bytes() == b"of another service"


@pytest.mark.slow
def test_the_model_of_a_demo_is_whole_once_it_is_built(
    running: RunningService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The model learns each second picture, which is enough to see that it forgets."""
    for name in sample_pictures.BATCHES:
        with zipfile.ZipFile(sample_pictures.locate_packaged_sample_archive(name)) as archive:
            pictures = {one: archive.read(one) for one in archive.namelist()[::2]}
        (tmp_path / f"{name}.zip").write_bytes(small.pack_zip(pictures))
    monkeypatch.setattr(sample_pictures, "FOLDER", tmp_path)
    with Perennial(running.key, base_url=running.url) as client:
        serve_demo.create_demo_model_and_learn_batches(client)
        check_whole_demo(running.url, running.key, share=2)
        client.models.delete(sample_pictures.MODEL)


# tests/tools/test_serve_demo.py shows directory, port and options; `make demo` of .ci/run starts a
# service in the same way.
@pytest.mark.campaign
@pytest.mark.slow
def test_a_demo_is_whole_after_its_start(folder: Path, own: dict[str, str]) -> None:
    with start_demo(folder, own) as demo:
        printed = demo.wait_for("has a rollback")
        assert "version 4 is held there because it forgot" in " ".join(printed.split())
        check_whole_demo(demo.url)
    assert serve_demo.is_demo_complete(folder / serve_demo.FOLDER)
    check_other_untouched(folder)


@pytest.mark.campaign  # tests/tools/test_serve_demo.py shows what is not complete
@pytest.mark.slow
def test_a_demo_that_was_killed_while_it_was_built_is_whole_after_the_next_start(
    folder: Path, own: dict[str, str]
) -> None:
    data = folder / serve_demo.FOLDER
    with start_demo(folder, own) as demo:
        deadline = time.monotonic() + WAIT_S
        while not (data / "perennial.db").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        demo.process.kill()
        demo.process.wait()
    assert not serve_demo.is_demo_complete(data)
    with start_demo(folder, own) as demo:
        demo.wait_for("has a rollback")
        check_whole_demo(demo.url)
    assert serve_demo.is_demo_complete(data)
    check_other_untouched(folder)


@pytest.mark.campaign
@pytest.mark.parametrize("batch", [*sample_pictures.BATCHES])
def test_a_demo_is_whole_wherever_its_building_was_killed_and_after_a_reset(
    folder: Path, own: dict[str, str], batch: str
) -> None:
    with start_demo(folder, own) as demo:
        log = folder / serve_demo.FOLDER / "service.log"
        accepted = f'"task": {[*sample_pictures.BATCHES].index(batch) + 1}'
        deadline = time.monotonic() + WAIT_S
        while not log.exists() or accepted not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(demo.process.pid, signal.SIGKILL)
        demo.process.wait()
    with start_demo(folder, own) as demo:
        demo.wait_for("has a rollback")
        check_whole_demo(demo.url)
        with Perennial("pk_none", base_url=demo.url) as client:
            client.models.create("mine")
    with start_demo(folder, own) as demo:
        demo.wait_for("has a rollback")
        check_whole_demo(demo.url)
        with Perennial("pk_none", base_url=demo.url) as client:
            assert client.models.retrieve("mine").name == "mine"
    with start_demo(folder, own, "--reset") as demo:
        demo.wait_for("has a rollback")
        check_whole_demo(demo.url)
        with Perennial("pk_none", base_url=demo.url) as client:
            assert [model.name for model in client.models.list()] == [sample_pictures.MODEL]
    check_other_untouched(folder)
