"""Fixtures of ingest: the corpus of hostile archives, and short ways to inspect and ingest
bytes.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

import hostile_corpus

from core.ingest.ingest import (
    DecodingCallbacks,
    IngestedBatch,
    IngestOptions,
    decode_archive_to_datasets,
)
from core.ingest.inspect import ArchiveSummary, summarise_archive_and_digest_content
from core.ingest.limits import ArchiveLimits
from core.ingest.sniff import SNIFF_BYTES, detect_upload_format


@pytest.fixture
def hostile_archives() -> list[hostile_corpus.Attack]:
    """[(name, builder of the bytes, content type, expected code, text that the message names)]"""
    return hostile_corpus.list_attacks()


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., ArchiveSummary]:
    """look(data, declared=None, **limits): sniff and inspect bytes, as the API does."""

    def read_archive_directory(
        data: bytes, declared: str | None = None, **limits: int
    ) -> ArchiveSummary:
        path = tmp_path / "body"
        path.write_bytes(data)
        return summarise_archive_and_digest_content(
            path, detect_upload_format(data[:SNIFF_BYTES], declared), ArchiveLimits(**limits)
        )

    return read_archive_directory


@pytest.fixture
def take(tmp_path: Path) -> Callable[..., IngestedBatch]:
    """take(data, size=8, channels=3, limits=…, **options): ingest bytes with one decoder."""

    def ingest_archive(
        data: bytes,
        size: int = 8,
        channels: int = 3,
        limits: ArchiveLimits | None = None,
        **options: Any,
    ) -> IngestedBatch:
        path = tmp_path / "archive"
        path.write_bytes(data)
        kind = detect_upload_format(data[:SNIFF_BYTES], None)
        monitor = DecodingCallbacks(
            **{name: options.pop(name) for name in ("progress", "stop") if name in options}
        )
        options = {"processes": 1} | options
        chosen = IngestOptions(size, channels, limits or ArchiveLimits(), **options)
        return decode_archive_to_datasets(path, kind, tmp_path / "out", chosen, monitor)

    return ingest_archive
