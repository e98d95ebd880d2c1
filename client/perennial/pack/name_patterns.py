"""Matching of file names by a regular expression, in a separate process with a time limit.

It runs only on the sender's side. The service supports patterns such as `{label}_{number}`, which
need a single pass per name.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from perennial.pack.errors import PackError
from perennial.pack.names import is_image_path, is_junk_path, normalise_to_nfc
from perennial.pack.text import quote_name
from perennial.reading_rules.tables import FoundLabelTable
from perennial.reading_rules.tables.file_names import TITLE
from perennial.reading_rules.tables.found import LabelTableEntryCollector

MAX_PATTERN_CHARS, MAX_NAME_CHARS = 200, 255
LIMIT_S = 20.0
_PROGRAM = """
import json, re, sys
pattern, names, most = json.load(sys.stdin)
try:
    compiled = re.compile(pattern)
except (re.error, RecursionError, OverflowError) as error:
    print(json.dumps({"wrong": str(error)}))
    sys.exit()
group = "label" if "label" in compiled.groupindex else 1
if compiled.groups < 1:
    print(json.dumps({"wrong": "it has no group"}))
    sys.exit()
found = [compiled.search(name) if len(name) <= most else None for name in names]
print(json.dumps({"labels": [match and match[group] for match in found]}))
"""


def extract_labels_by_pattern_within_time(
    pattern: str, names: Sequence[str], limit_s: float = LIMIT_S
) -> list[str | None]:
    """Extract a label from each file name by a regular expression, within a time limit.

    Args:
        pattern: at most 200 characters, searched for in a name; the label is the group `label`,
            else the first group. Names of more than 255 characters do not match.
        limit_s: maximum seconds for all names.

    Raises:
        PackError: the expression is invalid, or takes too long.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PackError(
            f"names_pattern has {len(pattern)} characters; {MAX_PATTERN_CHARS} are allowed."
        )
    request = json.dumps([pattern, list(names), MAX_NAME_CHARS])
    try:
        # A process can be stopped in the middle of a match, which a thread cannot.
        run = subprocess.run(
            # Isolated: neither the working directory nor site-packages are imported from.
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            # Through standard input, because the names may exceed the limit on arguments.
            input=request,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as error:
        raise PackError(
            f"The regular expression {quote_name(pattern)} took more than {limit_s:g} s for "
            f"{len(names):,} names. Write it "
            "without repetitions of repetitions, or as a pattern such as {label}_{number}."
        ) from error
    if run.returncode:
        raise PackError(
            f"The regular expression {quote_name(pattern)} could not be run: "
            f"{quote_name(run.stderr[-200:])}."
        )
    response = json.loads(run.stdout)
    if "wrong" in response:
        raise PackError(
            f"names_pattern is {quote_name(pattern)}, which is neither a pattern such as "
            f"{{label}}_{{number}} nor a regular "
            f"expression with a group for the label, such as '(.+)_\\d+': {response['wrong']}."
        )
    labels: list[str | None] = response["labels"]
    return labels


def build_table_by_pattern(pattern: str, names: Sequence[str]) -> FoundLabelTable:
    """Label images by a regular expression on their names; return them as a table. Raises
    PackError.
    """
    images = [name for name in names if is_image_path(name) and not is_junk_path(name)]
    rows = LabelTableEntryCollector(TITLE, len(images))
    labels = extract_labels_by_pattern_within_time(
        pattern, [name.rpartition("/")[2] for name in images]
    )
    for name, label in zip(images, labels, strict=True):
        if label is None:
            rows.record_bad_entry(name, "does not match the pattern of names")
        else:
            rows.add_label_entry(normalise_to_nfc(name), label, f"the name {quote_name(name)}")
    return rows.table
