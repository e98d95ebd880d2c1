"""Marks in tables on a terminal: the version in production, the newest published one, edited labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from perennial.cli.output import Cell

MARK = "*"
"""Mark of the version in production."""
EDITED = "†"
"""Mark of an accuracy that was measured before labels of its task were edited."""


@dataclass(frozen=True)
class ProductionAndLatestVersions:
    """Numbers of a model's production and newest published versions; None: there is none."""

    production: int | None
    latest: int | None

    @classmethod
    def from_aliases(cls, aliases: Mapping[str, int | None]) -> Self:
        """Return the production and newest versions that a model's aliases name."""
        return cls(aliases.get("production"), aliases.get("latest"))

    def format_version_with_production_mark(self, version: int | None) -> Cell:
        """Format a version's number for a table, marked if it is in production."""
        # None is no version, but it would equal a production that is None.
        return f"{version}{MARK}" if version is not None and version == self.production else version

    def describe_version_role(self, version: int | None) -> str:
        """Describe a version's role after its number, such as ", in production"; else ""."""
        roles = {self.production: "in production"}
        if version is not None and version == self.latest:
            roles[version] = (
                f"{roles[version]} and the newest published"
                if version in roles
                else "the newest published"
            )
        return f", {roles[version]}" if version is not None and version in roles else ""

    def format_table_legend(self) -> str:
        """Return the legend of the marks in a table of versions; empty for a model without a
        version.
        """
        if self.production is None or self.latest is None:
            return ""
        return f"{MARK} in production: version {self.production}."

    def explain_now_column(self) -> str:
        """Return a sentence that says which version the column “now” is about; empty without a
        version.
        """
        if self.latest is None:
            return ""
        return f"“now” is version {self.latest}{self.describe_version_role(self.latest)}."
