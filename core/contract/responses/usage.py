"""Usage, by model or by owner."""

from typing_extensions import TypedDict

from core.contract.usage import ModelUsage, OwnerUsage


class UsagePage(TypedDict):
    """A page of storage usage, by model or by owner."""

    items: list[ModelUsage | OwnerUsage]
    next_cursor: str | None
