"""The command line as a person sees it: photos in, versions out, on a terminal of 80 columns.

    python -m bench.research.transcript --data DIR > docs/reference/transcript.md

Nine classes of CIFAR-100 come as photos in folders, three classes a week. A service learns them,
and every command is run on a pseudo-terminal; what stands on its screen at the end is printed as
Markdown.  DIR holds `cifar100/classes_60-69.zip`.
"""

import argparse
import contextlib
import fcntl
import os
import pty
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyte

from bench.research.new_user import encode_photo_as_jpeg
from tools import service

COLUMNS, LINES = 80, 100
WEEKS, CLASSES, TO_LEARN, HELD_OUT, SIZE = 3, 3, 60, 30, 64
COUNT = 'import json, sys; print([one["status"] for one in json.load(sys.stdin)])'
HEAD = """# A session on the command line

This page shows a session on a terminal of 80 columns. The example has nine classes of photos in \
three folders, a
version that its gate holds, and one that is rolled back. Times, ids and digests are those of one run.
{made}
"""
STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Create a model. Earlier classes may lose a tenth of their accuracy.",
        ("perennial models create garden --max-forgetting 0.1 --base perennial/resnet20-cifar100",),
    ),
    ("Send a folder with a subfolder of photos for each class.", ("perennial submit garden week-31",)),
    (
        "Fine-tuning on a batch forgets the one before, so the gate holds its version.",
        ("perennial submit garden week-32 --recipe '{\"method\": "
            "\"finetune\"}'", "perennial metrics garden"),
    ),
    (
        "You can overrule the gate, with a reason, and undo this.",
        (
            'perennial promote garden 2 --reason "the new classes are needed today"',
            'perennial rollback garden --reason "it forgot the first week"',
        ),
    ),
    (
        "Learn the lost week again with the model's own recipe, and let production follow.",
        (
            "perennial tasks relearn garden 2 --recipe '{}'",
            "perennial follow garden",
            "perennial submit garden week-33",
            "perennial metrics garden",
        ),
    ),
    (
        "Predict a folder with production, and download the version.",
        ("perennial predict garden new", "perennial download garden"),
    ),
    (
        "Print without colour, or for programs.",
        (
            "NO_COLOR=1 perennial versions list garden",
            f"perennial versions list garden --json | python3 -c {shlex.quote(COUNT)}",
        ),
    ),
)  # fmt: skip


def main() -> None:
    """Run the commands of the tutorial's transcript, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    source = parser.parse_args().data / "cifar100" / "classes_60-69.zip"
    print(HEAD.format(made="`python -m bench.research.transcript` writes this page."))
    with (
        tempfile.TemporaryDirectory() as root,
        service.run_temporary_service(Path(root) / "service") as running,
    ):
        folder = Path(root) / "garden"
        write_weekly_photo_folders(source, folder)
        terminal = TranscriptTerminal(
            folder, {"PERENNIAL_URL": running.url, "PERENNIAL_API_KEY": running.key}
        )
        for words, commands in STEPS:
            print(f"{words}\n\n```text")
            for number, command in enumerate(commands):
                print("\n" * bool(number) + f"$ {command}")
                print(terminal.run_command(command), flush=True)
            print("```\n")


def write_weekly_photo_folders(source: Path, folder: Path) -> None:
    """Write sample photos as `week-31/train/<class>/<n>.jpg` and so on, some held-out in `new`."""
    with zipfile.ZipFile(source) as archive:
        files: dict[tuple[str, str], list[str]] = {}
        for name in sorted(archive.namelist()):
            part, label, _file = name.split("/")
            files.setdefault((label, part), []).append(name)
        labels = sorted({label for label, _part in files})[: WEEKS * CLASSES]
        for label_index, label in enumerate(labels):
            week = folder / f"week-{31 + label_index // CLASSES}"
            for part, count in (("train", TO_LEARN), ("test", HELD_OUT)):
                for number, name in enumerate(files[label, part][:count]):
                    write_file_with_folders(
                        week / part / label / f"{number:03}.jpg",
                        encode_photo_as_jpeg(archive.read(name), SIZE),
                    )
            write_file_with_folders(
                folder / "new" / f"{label}.jpg",
                encode_photo_as_jpeg(archive.read(files[label, "test"][HELD_OUT]), SIZE),
            )


def write_file_with_folders(path: Path, content: bytes) -> None:
    """Write a file, and create its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@dataclass
class TranscriptTerminal:
    """Runs commands in a folder, with additions to the environment, for a transcript."""

    folder: Path
    environment: dict[str, str]

    def run_command(self, command: str) -> str:
        """Run a command; return its output as a terminal shows it, with its exit status."""
        master, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        script = f'perennial() {{ {shlex.quote(sys.executable)} -m perennial "$@"; }}; {command}'
        environment = {**os.environ, **self.environment, "TERM": "xterm-256color"}
        environment.pop("COLUMNS", None)
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=environment,
            stdin=child,
            stdout=child,
            stderr=child,
        )
        os.close(child)
        screen = pyte.Screen(COLUMNS, LINES)
        stream = pyte.ByteStream(screen)
        with contextlib.suppress(OSError):  # EIO: the other end was closed
            while written := os.read(master, 1 << 16):
                stream.feed(written)
        os.close(master)
        status = process.wait()
        shown = "\n".join(line.rstrip() for line in screen.display).rstrip()
        return f"{shown}\n(exit status {status})" if status else shown


if __name__ == "__main__":
    main()
