import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from core.logging import configure_logging


@pytest.fixture
def lines() -> Iterator[Any]:
    """Configures logging to a buffer; calling the fixture returns the lines written."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("worker", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_json_with_time_level_service_and_bound_ids(lines: Any) -> None:
    with structlog.contextvars.bound_contextvars(job="job_1"):
        structlog.get_logger("x").info("hello", step=3)
    (line,) = lines()
    assert line["event"] == "hello"
    assert (line["level"], line["service"], line["job"], line["step"]) == (
        "info",
        "worker",
        "job_1",
        3,
    )
    assert line["at"].endswith("Z")


def test_library_records_take_the_same_form(lines: Any) -> None:
    logging.getLogger("celery.worker").warning("lost %s", "redis")
    (line,) = lines()
    assert (line["event"], line["level"], line["service"]) == ("lost redis", "warning", "worker")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("authorization", "anything"),
        ("text", "Authorization: Bearer abcdefghijk12345"),
        ("text", "key pk_abc123_SECRETSECRET was used"),
        ("url", "postgresql+psycopg://user:hunter2@db/x"),
        ("url", "redis://:hunter2@db:6379"),
        ("url", "https://s3/x?X-Amz-Signature=abcdef0123&y=1"),
        ("nested", {"password": "hunter2", "list": ["Bearer abcdefghijk12345"]}),
    ],
)
def test_a_secret_is_never_written(lines: Any, field: str, value: Any) -> None:
    structlog.get_logger("x").info("m", **{field: value})
    text = json.dumps(lines())
    for secret in ("hunter2", "SECRETSECRET", "abcdefghijk12345", "abcdef0123", "anything"):
        assert secret not in text


def test_a_secret_in_an_exception_is_never_written(lines: Any) -> None:
    try:
        raise ValueError("cannot reach redis://:hunter2@db:6379")
    except ValueError:
        structlog.get_logger("x").exception("failed")
    (line,) = lines()
    assert "ValueError" in line["exception"]
    assert "hunter2" not in json.dumps(line)


def test_lines_below_the_level_are_not_written(lines: Any) -> None:
    structlog.get_logger("x").debug("quiet")
    assert lines() == []
