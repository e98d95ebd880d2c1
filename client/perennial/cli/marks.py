"""Marks in tables of a terminal: which version is in production, and which one the figures of now are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from perennial.cli.output import Cell

MARK = "*"


@dataclass(frozen=True)
class Standing:
    """Versions of a model by number: in production, and the newest published; None: there is none yet."""

    production: int | None
    latest: int | None

    @classmethod
    def of(cls, aliases: Mapping[str, int | None]) -> Self:
        """That of a model's aliases."""
        return cls(aliases.get("production"), aliases.get("latest"))

    def marked(self, version: int | None) -> Cell:
        """A version's cell, with a mark where it is in production."""
        return f"{version}{MARK}" if version is not None and version == self.production else version

    def words(self, version: int | None) -> str:
        """What a version is beside its number: ", in production"; empty of others."""
        found = {self.production: "in production"}
        if version is not None and version == self.latest:
            found[version] = (
                f"{found[version]} and the newest published" if version in found else "the newest published"
            )
        return f", {found[version]}" if version is not None and version in found else ""

    def legend(self) -> str:
        """The sentence below a table; empty of a model without a version."""
        if self.production is None or self.latest is None:
            return ""
        return f"{MARK} in production: version {self.production}."

    def now(self) -> str:
        """The sentence that says which version “now” is; empty of a model without a version."""
        if self.latest is None:
            return ""
        return f"“now” is version {self.latest}{self.words(self.latest)}."
