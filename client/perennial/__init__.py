"""Perennial's client: labelled images in, verified versions of a classifier out.

    from perennial import Perennial

    client = Perennial()
    job = client.submit("birds", "photos/", progress=True).wait(progress=True)
    file = client.download("birds", job.version, "birds.zip")

`AsyncPerennial` has the same methods as coroutines: `_sync` is generated from `_async`.
Importing this module is cheap: its parts are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from perennial import types
    from perennial._async.client import AsyncPerennial
    from perennial._async.job import AsyncJobHandle
    from perennial._sync.client import Perennial
    from perennial._sync.job import JobHandle
    from perennial.comparison import Comparison
    from perennial.errors import (
        APIError,
        ArchiveRejected,
        BadAnswer,
        BaseFailed,
        BaseUnavailable,
        ConfigError,
        Conflict,
        DigestMismatch,
        Forbidden,
        GateHeld,
        Invalid,
        JobCancelled,
        JobEnded,
        JobFailed,
        JobRejected,
        NoKey,
        NotFound,
        PerennialError,
        Rejected,
        ServiceUnreachable,
        TooLarge,
        TooManyRequests,
        Unauthorized,
        Unavailable,
        UndecidedBatch,
        WaitTimeout,
    )
    from perennial.retry import Retries
    from perennial.transfer import Downloaded

_FROM = {
    "AsyncJobHandle": "_async.job",
    "AsyncPerennial": "_async.client",
    "JobHandle": "_sync.job",
    "Perennial": "_sync.client",
    "Comparison": "comparison",
    "APIError": "errors",
    "ArchiveRejected": "errors",
    "BadAnswer": "errors",
    "BaseFailed": "errors",
    "BaseUnavailable": "errors",
    "ConfigError": "errors",
    "Conflict": "errors",
    "DigestMismatch": "errors",
    "Forbidden": "errors",
    "GateHeld": "errors",
    "Invalid": "errors",
    "JobCancelled": "errors",
    "JobEnded": "errors",
    "JobFailed": "errors",
    "JobRejected": "errors",
    "NoKey": "errors",
    "NotFound": "errors",
    "PerennialError": "errors",
    "Rejected": "errors",
    "ServiceUnreachable": "errors",
    "TooLarge": "errors",
    "TooManyRequests": "errors",
    "Unauthorized": "errors",
    "Unavailable": "errors",
    "UndecidedBatch": "errors",
    "WaitTimeout": "errors",
    "Retries": "retry",
    "Downloaded": "transfer",
}

__all__ = [  # noqa: RUF022
    "Perennial",
    "AsyncPerennial",
    "JobHandle",
    "AsyncJobHandle",
    "Comparison",
    "Downloaded",
    "Retries",
    "types",
    "APIError",
    "ArchiveRejected",
    "BadAnswer",
    "BaseFailed",
    "BaseUnavailable",
    "ConfigError",
    "Conflict",
    "DigestMismatch",
    "Forbidden",
    "GateHeld",
    "Invalid",
    "JobCancelled",
    "JobEnded",
    "JobFailed",
    "JobRejected",
    "NoKey",
    "NotFound",
    "PerennialError",
    "Rejected",
    "ServiceUnreachable",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UndecidedBatch",
    "WaitTimeout",
]


# a type checker that saw this would accept any name as an attribute of the package
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "types":
            return import_module("perennial.types")
        if name not in _FROM:
            raise AttributeError(f"module 'perennial' has no attribute {name!r}")
        return getattr(import_module(f"perennial.{_FROM[name]}"), name)


def __dir__() -> list[str]:
    # Names are not in globals() before their first use, and completion would not offer them.
    return sorted([*globals(), *__all__])
