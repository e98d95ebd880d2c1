"""--jq: JSON passes the program jq on its way out."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import click

from perennial.cli.output import json_to, write_lines
from perennial.text import one_line

COMPILED = 3
"""Exit status of jq for an expression that is none."""


@contextmanager
def filtered(expression: str) -> Iterator[None]:
    """Send the JSON of a command through `jq --raw-output EXPRESSION`; what comes out is printed line by line.

    Raises:
        UsageError: there is no jq on this machine, or the expression is none.
        ClickException: jq found that the expression does not fit the answer.
    """
    program = shutil.which("jq")
    if program is None:
        raise click.UsageError(
            "--jq needs the program jq, which is not on this machine: install it (https://jqlang.org), or take --json."
        )
    with subprocess.Popen(
        [program, "--raw-output", "--compact-output", "--unbuffered", f" {expression}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        told: list[str] = []
        readers = [
            threading.Thread(target=write_lines, args=(process.stdout,), daemon=True),
            threading.Thread(target=told.extend, args=(process.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            with json_to(lambda text: _send(process.stdin, text)):
                yield
        finally:
            _end(process.stdin)
            for reader in readers:
                reader.join()
            status = process.wait()
        if status:
            said = one_line(" ".join(told).strip()) or f"it ended with {status}"
            kind = click.UsageError if status == COMPILED else click.ClickException
            raise kind(f"--jq {expression!r}: {said}")


def _send(stdin: IO[str] | None, text: str) -> None:
    """Pass a document on; one who has ended says why in its status."""
    assert stdin is not None
    with suppress(BrokenPipeError):
        stdin.write(text + "\n")
        stdin.flush()


def _end(stdin: IO[str]) -> None:
    with suppress(BrokenPipeError):
        stdin.close()
