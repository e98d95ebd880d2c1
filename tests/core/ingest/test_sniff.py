"""Damaged and rearranged archives raise typed errors, quickly, or are read: nothing else."""

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import hostile_corpus as corpus
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import PerennialError
from core.ingest.inspect import inspect
from core.ingest.limits import Limits
from core.ingest.sniff import SNIFF_BYTES, sniff

SEEDS: dict[str, Callable[[], bytes]] = {
    "zip": lambda: corpus.honest_zip(corpus.pictures(2)),
    "deflated": lambda: corpus.honest_zip(corpus.pictures(2), 8),
    "zip64": corpus.zip64,
    "tar": lambda: corpus.tar(
        corpus.pictures(2), corpus.pax({"path": "cat/z.png"}), corpus.tar_entry(b"x", b"y")
    ),
    "gzip": lambda: gzip.compress(corpus.tar(corpus.pictures(1)), mtime=0),
    "npz": lambda: corpus.npz(corpus.good_arrays(4)),
    "csv": lambda: corpus.honest_zip(corpus.pictures(1) | {"labels.csv": b"path,label\ncat/0.png,x\n"}),
}
EDIT = st.tuples(
    st.floats(0, 1), st.sampled_from(["set", "cut", "insert", "repeat", "near end"]), st.binary(max_size=12)
)


def edited(data: bytes, edits: list[tuple[float, str, bytes]]) -> bytes:
    for where, kind, bytes_ in edits:
        at = int(where * len(data))
        if kind == "near end":
            at = max(0, len(data) - 1 - int(where * 300))
        if kind == "cut":
            data = data[:at] + data[at + len(bytes_) :]
        elif kind == "insert":
            data = data[:at] + bytes_ + data[at:]
        elif kind == "repeat":
            data = data[:at] + data[max(0, at - 40) :]
        else:
            data = data[:at] + bytes_ + data[at + len(bytes_) :]
    return data


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(EDIT, min_size=1, max_size=4))
def test_a_mutated_archive_is_read_or_refused_in_bounded_time(
    seed: str, edits: list[tuple[float, str, bytes]], tmp_path: Path
) -> None:
    data = edited(SEEDS[seed](), edits)
    path = tmp_path / "body"
    path.write_bytes(data)
    begin = time.process_time()
    try:
        found = inspect(path, sniff(data[:SNIFF_BYTES], None), Limits())
        assert found.n_train >= 1
    except PerennialError as error:
        assert 400 <= error.status < 500
        assert error.detail.isprintable()
    assert time.process_time() - begin < 2


@settings(max_examples=100, deadline=None)
@given(
    data=st.binary(max_size=600),
    declared=st.sampled_from([None, "application/zip", "application/x-tar", "x/y", ""]),
)
def test_any_first_bytes_are_sniffed_or_refused(data: bytes, declared: str | None) -> None:
    try:
        assert sniff(data, declared) in ("zip", "tar", "gzip", "npz")
    except PerennialError as error:
        assert error.status in (415, 422)


@pytest.mark.parametrize(
    ("declared", "data", "kind"),
    [
        ("application/zip", SEEDS["zip"](), "zip"),
        ("application/zip; charset=binary", SEEDS["zip"](), "zip"),
        (None, SEEDS["npz"](), "npz"),
        ("application/x-npz", SEEDS["npz"](), "npz"),
        ("application/octet-stream", SEEDS["tar"](), "tar"),
        ("application/gzip", SEEDS["gzip"](), "gzip"),
    ],
)
def test_a_true_type_is_accepted(declared: str | None, data: bytes, kind: str) -> None:
    assert sniff(data[:SNIFF_BYTES], declared) == kind
