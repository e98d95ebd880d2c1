"""Detection of a body's media type from its first bytes and the type that its sender declares."""

import gzip
from collections.abc import Callable

import hostile_corpus as corpus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import PerennialError
from core.ingest.sniff import SNIFF_BYTES, detect_upload_format

SEEDS: dict[str, Callable[[], bytes]] = {
    "zip": lambda: corpus.build_zip(corpus.draw_pictures(2)),
    "tar": lambda: corpus.build_tar(corpus.draw_pictures(2)),
    "gzip": lambda: gzip.compress(corpus.build_tar(corpus.draw_pictures(1)), mtime=0),
    "npz": lambda: corpus.build_npz(corpus.build_good_arrays(4)),
}


@settings(max_examples=100, deadline=None)
@given(
    data=st.binary(max_size=600),
    declared=st.sampled_from([None, "application/zip", "application/x-tar", "x/y", ""]),
)
def test_any_first_bytes_are_sniffed_or_refused(data: bytes, declared: str | None) -> None:
    try:
        assert detect_upload_format(data, declared) in ("zip", "tar", "gzip", "npz")
    except PerennialError as error:
        assert error.status in (415, 422)


@pytest.mark.parametrize(
    ("declared", "data", "kind"),
    [
        ("application/zip", SEEDS["zip"](), "zip"),
        ("application/zip; charset=binary", SEEDS["zip"](), "zip"),
        (None, SEEDS["npz"](), "npz"),
        ("application/x-npz", SEEDS["npz"](), "npz"),
        ("application/zip", SEEDS["npz"](), "npz"),  # what the members are decides,
        ("application/x-npz", SEEDS["zip"](), "npz"),  # unless the sender says it
        ("application/octet-stream", SEEDS["tar"](), "tar"),
        ("application/gzip", SEEDS["gzip"](), "gzip"),
    ],
)
def test_a_true_type_is_accepted(declared: str | None, data: bytes, kind: str) -> None:
    assert detect_upload_format(data[:SNIFF_BYTES], declared) == kind
