"""Prometheus metrics of the store's operations."""

from pathlib import Path

import pytest

from core import telemetry
from core.errors import StoredObjectDamaged
from core.storage.folder import FolderStore
from core.storage.timed import TimedStore


def read_metric(metric: str, **labels: str) -> float:
    """Return the value of a metric of this process, or 0 before its first event."""
    return telemetry.select_metrics_registry().get_sample_value(metric, labels) or 0.0


def test_an_operation_is_counted_with_its_time(tmp_path: Path) -> None:
    store = TimedStore(FolderStore(tmp_path))
    before = [
        read_metric("perennial_store_seconds_count", operation=name)
        for name in ("put", "read", "delete")
    ]
    store.put_bytes("a/x", b"one")
    assert b"".join(store.read("a/x")) == b"one"
    store.delete("a/x")
    after = [
        read_metric("perennial_store_seconds_count", operation=name)
        for name in ("put", "read", "delete")
    ]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]


def test_an_operation_that_fails_is_counted_by_its_error(tmp_path: Path) -> None:
    store = TimedStore(FolderStore(tmp_path))
    labels = {"operation": "read", "code": "store-corrupt"}
    before = read_metric("perennial_store_failures_total", **labels)
    with pytest.raises(StoredObjectDamaged):
        store.read("a/missing")
    assert read_metric("perennial_store_failures_total", **labels) == before + 1
