"""Tests of the documents find their helpers in this folder, and share a reader with a service."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import reader as readers

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[readers.Reader]:
    """A reader, whose service is that of all documents."""
    with readers.start_reader(tmp_path_factory.mktemp("reader")) as found:
        yield found
