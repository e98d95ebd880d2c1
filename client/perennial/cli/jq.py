"""The option --jq: filter JSON output through the program jq."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import click

from perennial.cli.output import print_lines_as_received, send_json_output_to_sink
from perennial.text import make_text_one_line

COMPILED = 3
"""Exit status of jq for an invalid expression."""


@contextmanager
def pipe_json_output_through_jq(expression: str) -> Iterator[None]:
    """Send the JSON of a command through `jq --raw-output EXPRESSION`, and print its output by
    line.

    Raises:
        UsageError: jq is not installed, or the expression is invalid.
        ClickException: the expression does not fit the response.
    """
    program = shutil.which("jq")
    if program is None:
        raise click.UsageError(
            "--jq needs the program jq, which is not on this machine: install it "
            "(https://jqlang.org), or take --json."
        )
    with subprocess.Popen(
        # The blank keeps an expression that begins with a hyphen from being read as an option.
        [program, "--raw-output", "--compact-output", "--unbuffered", f" {expression}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        error_lines: list[str] = []
        # Threads read both outputs, because jq would block on a full pipe, and then so would we.
        readers = [
            threading.Thread(target=print_lines_as_received, args=(process.stdout,), daemon=True),
            threading.Thread(target=error_lines.extend, args=(process.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            with send_json_output_to_sink(lambda text: _send_document_to_jq(process.stdin, text)):
                yield
        finally:
            # jq ends at the end of its input, and the readers end with jq.
            _close_jq_input(process.stdin)
            for reader in readers:
                reader.join()
            status = process.wait()
        if status:
            reason = make_text_one_line(" ".join(error_lines).strip()) or f"it ended with {status}"
            kind = click.UsageError if status == COMPILED else click.ClickException
            raise kind(f"--jq {expression!r}: {reason}")


def _send_document_to_jq(stdin: IO[str] | None, text: str) -> None:
    """Write a document to jq's input; if jq has ended, drop it."""
    assert stdin is not None
    with suppress(BrokenPipeError):
        stdin.write(text + "\n")
        stdin.flush()


def _close_jq_input(stdin: IO[str]) -> None:
    # Closing writes what is still in the buffer, and jq may have ended before.
    with suppress(BrokenPipeError):
        stdin.close()
