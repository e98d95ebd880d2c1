"""Rows of cells: CSV and similar formats with any separator, in UTF-8 or UTF-16.

Text stays text: a cell such as `=1+1` is never evaluated. An unreadable row is returned as one with
a problem.
"""

import csv
import io
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SAMPLE_BYTES, _SAMPLE_ROWS = 64 << 10, 25
_SAYS_SEPARATOR = re.compile(r"\"?sep=(.)\"?\s*", re.IGNORECASE)
"""First line that tells a spreadsheet which character separates the cells."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class TableCellRow(NamedTuple):
    """A row of cells of a label table in text form (CSV).

    Attributes:
        line_number: the last line that it occupies, from 1.
        line_count: number of lines that it occupies.
        cells: its cells.
        problem: why it has no cells; "" if it has some.
    """

    line_number: int
    line_count: int
    cells: list[str]
    problem: str


def open_bytes_as_text(data: bytes) -> io.TextIOWrapper:
    """Open a file's bytes as text in their detected encoding; undecodable bytes become surrogates.

    The text is decoded line by line, because one rare character would make a whole text four times
    its bytes.
    """
    # Line breaks stay as they are, since the CSV reader must see those within quoted cells.
    return io.TextIOWrapper(
        io.BytesIO(data), detect_text_file_encoding(data), errors="surrogateescape", newline=""
    )


def detect_text_file_encoding(data: bytes) -> str:
    """Detect the character encoding of a text file's bytes.

    That is UTF-8 with or without a byte order mark, or UTF-16 by its mark or by the zero bytes of
    its ASCII letters.
    """
    if data.startswith(_UTF16):
        return "utf-16"
    first = data[:256]
    if len(first) >= 4 and b"\0" in first:
        even, odd = first[::2].count(0), first[1::2].count(0)
        if odd > len(first) // 4 and not even:
            return "utf-16-le"
        if even > len(first) // 4 and not odd:
            return "utf-16-be"
    return "utf-8-sig"


def find_cell_separator(data: bytes, *, with_blanks: bool = False) -> str:
    """Detect the character that separates the cells of a table, or "".

    It is the character that gives most of the first rows equally many cells, at least two.
    """
    declared = _parse_declared_separator(data)
    if declared in SEPARATORS:
        return declared
    best, best_share = "", 0.0
    for separator in (*SEPARATORS, *((" ",) if with_blanks else ())):
        rows = [
            r.cells
            for r in islice(read_table_rows(data[:_SAMPLE_BYTES], separator), _SAMPLE_ROWS)
            if r.cells
        ]
        if len(data) > _SAMPLE_BYTES:
            # The sample may end within a row.
            rows = rows[:-1] or rows
        if rows and len(rows[0]) >= 2:
            share = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
            if share > best_share:
                best, best_share = separator, share
    return best


def _parse_declared_separator(data: bytes) -> str:
    """Return the separator that a table's first line `sep=;` declares, or ""."""
    try:
        match = _SAYS_SEPARATOR.fullmatch(next(open_bytes_as_text(data[:_SAMPLE_BYTES]), ""))
    except UnicodeDecodeError:
        return ""
    return match[1] if match else ""


def read_table_rows(data: bytes, separator: str) -> Iterator[TableCellRow]:
    """Yield the rows of cells of a table file, without empty lines."""
    try:
        yield from _read_table_rows(open_bytes_as_text(data), separator)
    except UnicodeDecodeError:  # only UTF-16 raises this: its decoder has no surrogateescape
        yield TableCellRow(0, 1, [], "is not the UTF-16 that the file begins as")


def _read_table_rows(text: io.TextIOWrapper, separator: str) -> Iterator[TableCellRow]:
    # Strict, so that a broken quote is a problem of its row instead of wrong cells.
    reader = csv.reader(
        _iterate_lines_replacing_nulls(text),
        delimiter=separator,
        strict=True,
        skipinitialspace=separator == " ",
    )
    previous_line_number = 0
    while True:
        problem, cells = "", list[str]()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"is not valid CSV: {error}"
        line_number = reader.line_num
        if cells or problem:
            line_count = max(1, line_number - previous_line_number)
            yield TableCellRow(line_number, line_count, cells, problem)
        previous_line_number = line_number


def _iterate_lines_replacing_nulls(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a table with NUL characters replaced.

    A NUL, which stops older CSV readers, is replaced by a character that no label may have.
    """
    for number, row_text in enumerate(text):
        if not number and _SAYS_SEPARATOR.fullmatch(row_text):
            row_text = "\n"  # an empty line, so that the other lines retain their numbers
        yield row_text.replace("\0", "\ufffe") if "\0" in row_text else row_text
