"""A short journey through an installed service, from an unrelated directory.

    python tools/release/journey.py BIN [--broker URL] [--short]

BIN is the folder of `perennial` in an environment. The journey runs `migrate`, `doctor` and
`serve`, learns a batch, asks for predictions, downloads the version with its ONNX graph, and stops
the service. With a broker it does the same with two API processes and a Celery worker. The short
journey leaves out `doctor` and the graph. The directory has modules with the names of the service's
own folders, which must not be imported. The program itself needs only the standard library.
"""

import argparse
import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

BASE = "perennial/resnet20-cifar100"
API = (
    *("uvicorn", "--factory", "perennial_service.asgi:create_app"),
    *("--http", "perennial_service.asgi:Connection"),
)
DECOYS = ("api", "commands", "core", "migrations", "tools", "worker")
START_S = 600.0
"""Seconds for a start. The first one compiles PyTorch's files, which takes minutes on a busy
machine.
"""
STOP_S = 60.0
COLOURS = {"red": (200, 40, 40), "blue": (40, 40, 200)}
SIZE, IMAGES = 32, 20
"""Pixels a side, and images of a class."""


class TestedInstallation:
    """An installed service and client under test, and the folder in which its commands run."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        inherited_environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PERENN")
        }
        inherited_environment.pop("PYTHONPATH", None)
        port = find_free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environment = inherited_environment | {
            "HOME": str(folder / "home"),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PERENNIAL_PORT": str(port),
            "PERENNIAL_URL": self.url,
        }
        (folder / "home").mkdir()
        for name in DECOYS:
            (folder / f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')\n")

    def run_installed_program(self, *arguments: str) -> str:
        """Run an installed command to its end; return its output.

        Raises:
            SystemExit: it failed.
        """
        begin = time.monotonic()
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(f"{time.monotonic() - begin:5.1f} s  {' '.join(arguments)}", flush=True)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\n{arguments} ended with {done.returncode}.")
        return done.stdout

    @contextlib.contextmanager
    def run_in_background(self, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a command in the background within the block; check that it then stops in order."""
        log = self.folder / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=output, stderr=output
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # uvicorn stops in order, and then sends itself the signal again.
        if process.returncode not in (0, -signal.SIGTERM):
            raise SystemExit(f"{log.read_text()}\n{command} ended with {process.returncode}.")

    def wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the installed service is ready.

        Raises:
            SystemExit: the process ended, or takes too long.
        """
        begin = time.monotonic()
        while not is_service_ready(self.url):
            if process.poll() is not None or time.monotonic() > begin + START_S:
                raise SystemExit(f"{(self.folder / 'log').read_text()}\nThe service is not ready.")
            time.sleep(0.1)
        print(f"{time.monotonic() - begin:5.1f} s  ready: {process.args!r}", flush=True)

    def learn_predict_and_download(self, model: str, file_format: str) -> None:
        """Test the installation: learn a batch, predict with its version, and download it in a
        format.
        """
        self.run_installed_program("perennial", "models", "create", model, "--base", BASE)
        submit_output = self.run_installed_program("perennial", "submit", model, "photos")
        require_expected_output(f"Version 1 of {model} is published", submit_output)
        predict_output = self.run_installed_program(
            "perennial", "predict", model, "photos/red/0.png", "--json"
        )
        require_expected_output('"label": "red"', predict_output.replace('":"', '": "'))
        self.run_installed_program(
            "perennial", "download", model, "-o", f"{model}.zip", "--format", file_format
        )
        with zipfile.ZipFile(self.folder / f"{model}.zip") as archive:
            require_expected_output(f".{file_format}", " ".join(archive.namelist()))


def require_expected_output(expected: str, output: str) -> None:
    """Raise SystemExit unless a command's output contains the expected words."""
    if expected not in output:
        raise SystemExit(f"{output}\nThe output lacks {expected!r}.")


def is_service_ready(url: str) -> bool:
    """Return True if the service at a URL reports that it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def find_free_port() -> int:
    """Return a TCP port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_sample_batch(folder: Path) -> None:
    """Write a sample batch: images of two classes, noise around one colour each."""
    noise = random.Random(0)
    for label, colour in COLOURS.items():
        (folder / label).mkdir(parents=True)
        for number in range(IMAGES):
            rows = bytearray()
            for _ in range(SIZE):
                rows.append(0)  # PNG's filter of a row: none
                for _ in range(SIZE):
                    rows += bytes(value + noise.randrange(-40, 41) for value in colour)
            (folder / label / f"{number}.png").write_bytes(encode_rgb_png(bytes(rows)))


def encode_rgb_png(rows: bytes) -> bytes:
    """Encode the pixel rows of an RGB image of `SIZE` pixels a side as PNG."""
    header = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def main() -> None:
    """Test an installation from start to download."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", metavar="BIN", type=Path)
    parser.add_argument("--broker", metavar="URL", help="a Redis that has no other use")
    parser.add_argument("--short", action="store_true", help="without doctor and the ONNX graph")
    options = parser.parse_args()
    file_format = "safetensors" if options.short else "onnx"
    with tempfile.TemporaryDirectory() as folder:
        installed = TestedInstallation(options.programs.absolute(), Path(folder))
        print(installed.run_installed_program("perennial", "--version").strip())
        require_expected_output(
            "The tables are at revision", installed.run_installed_program("perennial", "migrate")
        )
        if not options.short:
            print(installed.run_installed_program("perennial", "doctor").strip())
        write_sample_batch(installed.folder / "photos")
        with installed.run_in_background("perennial", "serve") as service:
            installed.wait_until_ready(service)
            with urllib.request.urlopen(f"{installed.url}/docs/guide/", timeout=60) as response:
                require_expected_output("<h1", response.read().decode())
            installed.learn_predict_and_download("colours", file_format)
        if options.broker is not None:
            installed.environment["PERENNIAL_BROKER_URL"] = options.broker
            api = (*API, "--port", installed.environment["PERENNIAL_PORT"], "--workers", "2")
            with (
                installed.run_in_background("perennial", "worker"),
                installed.run_in_background(*api) as service,
            ):
                installed.wait_until_ready(service)
                installed.learn_predict_and_download("more-colours", file_format)
    print("The installation works.")


if __name__ == "__main__":
    main()
