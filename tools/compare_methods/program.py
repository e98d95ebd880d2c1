"""The command's body: a comparison with its lines of progress, its table and its file."""

import json
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
    found = compare(folder, options, complain)
    table(COLUMNS, table_rows(found.outcomes), "No row was asked for.")
    for outcome in found.outcomes:
        for note in outcome.notes:
            complain(f"{outcome.row}: {note}")
    complain(f"Measured in {found.document['seconds']:.0f} s.")
    if json_file is not None:
        json_file.write_text(json.dumps(found.document, ensure_ascii=False, indent=2) + "\n")
