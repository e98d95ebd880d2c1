"""The command's body: a comparison with its lines of progress, its table and its file."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from perennial.cli.output import complain, table
from tools.compare_methods.comparison import Options, compare, count_cores
from tools.compare_methods.table import COLUMNS, table_rows


def run_comparison(folder: Path, options: Options, json_file: Path | None) -> None:
    """Print the table, and write all figures to a file where one is named; progress goes to standard error.

    Raises:
        CannotCompare: see `compare`.
    """
    torch.set_num_threads(count_cores())
    with _unwinding():
        found = compare(folder, options, complain)
    table(COLUMNS, table_rows(found.outcomes), "No row was asked for.")
    for outcome in found.outcomes:
        for note in outcome.notes:
            complain(f"{outcome.row}: {note}")
    complain(f"Measured in {found.document['seconds']:.0f} s.")
    if json_file is not None:
        json_file.write_text(json.dumps(found.document, ensure_ascii=False, indent=2) + "\n")


@contextmanager
def _unwinding() -> Iterator[None]:
    """Let SIGTERM unwind a block as Ctrl-C does, so that the service that was started in it ends too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
