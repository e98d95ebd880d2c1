"""Body of the command: a comparison with lines of progress, its table and its file."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from perennial.cli.output import print_notice, print_table
from tools.compare_methods.comparison import Options, compare_methods, count_cores
from tools.compare_methods.table import COLUMNS, table_rows


def run_comparison(folder: Path, options: Options, json_file: Path | None) -> None:
    """Print the table, and write all figures to a file if one is named.

    Progress is printed on standard error.

    Raises:
        CannotCompare: see `compare_methods`.
    """
    torch.set_num_threads(count_cores())
    with _unwind_on_sigterm():
        comparison = compare_methods(folder, options, print_notice)
    print_table(COLUMNS, table_rows(comparison.outcomes), "No row was asked for.")
    for outcome in comparison.outcomes:
        for note in outcome.notes:
            print_notice(f"{outcome.row}: {note}")
    print_notice(f"Measured in {comparison.document['seconds']:.0f} s.")
    if json_file is not None:
        json_file.write_text(json.dumps(comparison.document, ensure_ascii=False, indent=2) + "\n")


@contextmanager
def _unwind_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind a block as Ctrl-C does, so that the service started in it ends, too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
