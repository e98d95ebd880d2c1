"""Commands that the service adds to `perennial`; pyproject.toml registers them."""

from tools.commands import (
    backup,
    check,
    compare_methods,
    doctor,
    migrate,
    restore,
    serve,
    sweep,
    worker,
)

__all__ = [
    "backup",
    "check",
    "compare_methods",
    "doctor",
    "migrate",
    "restore",
    "serve",
    "sweep",
    "worker",
]
