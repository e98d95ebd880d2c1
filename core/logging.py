"""Logging of API and worker: JSON lines of one format on standard error, without secrets.

Context such as `request`, `model` and `job` ids is bound with `structlog.contextvars` and appears
on every line of that request or attempt. Records of libraries (uvicorn, celery, sqlalchemy) get the
same format, so that one reader understands all lines.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

SECRET_FIELDS = frozenset(
    {
        "authorization",
        "cookie",
        "password",
        "secret",
        "secret_key",
        "access_key",
        "token",
        "api_key",
    }
)
_HIDDEN = "[hidden]"
_KEY = re.compile(r"\bpk_[A-Za-z0-9_-]{6,}")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s:@]*:[^/\s@]*@")
_SIGNATURE = re.compile(r"(?i)(X-Amz-(?:Signature|Credential|Security-Token)=)[^&\s\"']+")
_SUSPECT = re.compile(r"(?i)pk_|bearer|basic|://|X-Amz-")
"""Matches each text that one of the patterns above can match; most texts of a log do not."""


def configure_logging(service: str, *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send all log records of this process and its libraries to `stream` as JSON lines.

    Args:
        service: `api`, `worker` or `launcher`; a field of every line.
        level: lowest level that is written.
        stream: standard error by default.
    """

    def add_service_name(
        _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event["service"] = service
        return event

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        add_service_name,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Here and not in `shared`, so that it runs last, also over texts of exceptions.
                hide_secrets_in_log_record,
                # A value that JSON does not have, such as a path, must not cost the line.
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    root = logging.getLogger()
    # Replaced, not added: libraries may have handlers here, and lines would appear twice.
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery", "alembic"):
        logger = logging.getLogger(name)
        # uvicorn and Celery give these loggers handlers with a format of their own.
        logger.handlers[:] = []
        logger.propagate = True
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Access lines at INFO would duplicate the API's own line per request.
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)


def hide_secrets_in_log_record(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace secrets (fields, access keys, credentials in URLs, signatures) in a log record, at
    any depth.
    """
    for key in list(event):
        event[key] = _hide_secret_value(key, event[key])
    return event


def hide_access_keys(text: str) -> str:
    """Return a text in which each access key is replaced by `[hidden]`."""
    return _KEY.sub(_HIDDEN, text)


def _hide_secret_value(key: str, value: Any) -> Any:
    if key.lower() in SECRET_FIELDS:
        return _HIDDEN
    if isinstance(value, str):
        if _SUSPECT.search(value) is None:
            return value
        text = _BEARER.sub(rf"\1 {_HIDDEN}", hide_access_keys(value))
        text = _USERINFO.sub(rf"\1{_HIDDEN}@", text)
        return _SIGNATURE.sub(rf"\1{_HIDDEN}", text)
    if isinstance(value, dict):
        return {k: _hide_secret_value(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_hide_secret_value("", v) for v in value]
    return value
