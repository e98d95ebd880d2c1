"""The level of folders that names the classes: below wrapping folders, parts, and folders for batches.

A chain of single folders is a wrapping. Of two levels that both branch, the upper one is passed if its folders are
parts, dates or numbered alike; else the classes that the model knows decide, or the sender is asked.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from core.ingest.rules import parts as part_rules
from core.ingest.rules.builder import MOST_NOTES
from core.ingest.rules.entries import Remedy, RuleError
from core.ingest.rules.names import normal_label, show
from core.ingest.rules.sentences import count, counted, listed
from core.ingest.rules.words import are_batches, is_container, is_date, part_of

Known = Callable[[], Collection[str]]
"""The labels that the model knows, asked for only where they decide."""
Rows = list[tuple[tuple[str, ...], int]]
"""Folders as their names from some level on, each with its images; no folder is empty."""


_DAY_OR_MONTH = re.compile(r"0[1-9]|[12]\d|3[01]")


class Place(NamedTuple):
    """A folder's images: the folder that names their class, its place below wrapping folders, and their part, empty
    without parts."""

    folder: str
    where: str
    part: str


class Outside(NamedTuple):
    """Reason why a folder's images have no class, as the end of a sentence; `top`: the folder beside parts, if any."""

    reason: str
    top: str = ""


OUTSIDE = Outside("outside any class folder")


@dataclass
class Levels:
    """The way from the top to the folders of classes.

    `parts`: top folder → its part; `passed`: wrapping folders, from the top; `decided_by`: labels that the model knows
    and that decided; `notes`, `warnings`: sentences.
    """

    parts: dict[str, str] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    decided_by: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    steps: list[Callable[["Way"], Outside | None]] = field(default_factory=list)

    def place(self, folder: str) -> Place | Outside:
        """The place of a folder's images, by its path, or why they have none."""
        way = Way(folder.split("/"))
        for step in self.steps:
            wrong = step(way)
            if wrong is not None:
                return wrong
        if way.at == len(way.names):
            return OUTSIDE
        name = way.names[way.at]
        return Place(name, f"{way.top}/{name}" if way.top else name, way.part)


@dataclass
class Way:
    """A folder that is walked from the top: its names, how many are passed, and the part, with its folder."""

    names: list[str]
    at: int = 0
    top: str = ""
    part: str = ""

    def pass_by(self, name: str | None) -> Outside | None:
        """Go one folder down, into that of a name or into any; or return what is wrong."""
        if self.at >= len(self.names) or (name is not None and self.names[self.at] != name):
            return OUTSIDE
        self.at += 1
        return None


def find_levels(images: Mapping[str, int], level: int | None, known: Known) -> Levels:
    """The way to the classes of folders that hold images, by their paths.

    Args:
        images: folder → images that lie in it, none at the top.
        level: the level that the sender has chosen, from 1.
        known: the classes of the model.

    Raises RuleError where a part is missing, or where two readings are possible.
    """
    finder = _Finder(Levels(), level, known)
    rows: Rows = [(tuple(folder.split("/")), number) for folder, number in images.items()]
    finder.find(rows)
    return finder.levels


class _Finder:
    def __init__(self, levels: Levels, level: int | None, known: Known) -> None:
        self.levels = levels
        self._wanted, self._known, self._depth = level, known, 1
        self._is_done = self._in_dates = False

    def find(self, rows: Rows) -> None:
        rows = self._pass_wrapping(rows, may_have_parts=True)
        parts = {} if self._is_done else part_rules.parts_among(names for names, _ in rows)
        if parts:
            rows = self._pass_wrapping(self._pass_parts(rows, parts), may_have_parts=False)
        while not self._is_done and rows:
            rows = self._go_on(rows)

    def _pass_wrapping(self, rows: Rows, may_have_parts: bool) -> Rows:
        """Pass a chain of single folders; images beside a class folder do not end it where a container holds both."""
        while rows and not self._is_done:
            tops = {names[0] for names, _ in rows}
            subs = {names[1] for names, _ in rows if len(names) > 1}
            if len(tops) > 1 or not subs:
                break
            (top,) = tops
            direct = any(len(names) == 1 for names, _ in rows)
            below = _below(rows)
            has_parts = may_have_parts and _has_parts(below)
            if direct and not has_parts and not (is_container(top) and len(subs) > 1):
                break
            if may_have_parts and part_of(top) and not has_parts:
                break
            if not may_have_parts and not is_container(top) and not _branches(below):
                break  # a part, or a date, has said that classes follow
            if not is_container(top) and self._knows({top}, subs) == 1:
                self._is_done = True
                break
            self.levels.steps.append(lambda way, top=top: way.pass_by(top))  # type: ignore[misc]
            self.levels.passed.append(top)
            rows = below
        return rows

    def _pass_parts(self, rows: Rows, parts: dict[str, str]) -> Rows:
        """Enter the parts, and in each a chain of containers, as `train/images/<class>` and `seg_train/seg_train`."""
        self.levels.parts = parts
        self.levels.notes += [
            part_rules.note(top, part, set(parts.values()))
            for top, part in sorted(parts.items())[:MOST_NOTES]
        ]
        inner: dict[str, list[str]] = {}
        found: Rows = []
        # A folder with images in it in one part is a class in all.
        classes = {names[-1] for names, _ in rows if names[0] in parts and len(names) > 1}
        rows_of: dict[str, Rows] = {top: [] for top in parts}  # one pass: there may be as many parts as rows
        for row in rows:
            if row[0][0] in rows_of:
                rows_of[row[0][0]].append(row)
        for top in parts:
            mine = _below(rows_of[top])
            chain = inner[top] = []
            while True:
                subs = {names[0] for names, _ in mine}
                if len(subs) != 1 or any(len(names) == 1 for names, _ in mine):
                    break
                (sub,) = subs
                if sub in classes or (sub != top and not is_container(sub)):
                    break
                chain.append(sub)
                mine = _below(mine)
            found += mine

        def enter(way: Way) -> Outside | None:
            if way.at == len(way.names):
                return OUTSIDE
            top = way.names[way.at]
            if top not in parts:
                what = "which has no class folders" if part_of(top) else "which is no part of the batch"
                return Outside(f"in the folder {show(top)}, {what}", top)
            way.at, way.top, way.part = way.at + 1, top, parts[top]
            return next((wrong for name in inner[top] if (wrong := way.pass_by(name))), None)

        self.levels.steps.append(enter)
        return found

    def _go_on(self, rows: Rows) -> Rows:
        """Decide whether the top folders are the classes, or pass them."""
        uppers = _totals(rows)
        lowers = _totals(_below(rows))
        if self._wanted is not None:
            return self._to_wanted(rows, bool(lowers))
        direct = sum(number for names, number in rows if len(names) == 1)
        if not lowers or direct > sum(lowers.values()):
            return self._stop(rows)
        knows = self._knows(uppers, lowers)
        if knows == 1:
            return self._stop(rows)
        if knows == 2:
            self._depth += 1
            return self._stop(self._pass_upper(rows))
        is_dates = all(map(is_date, uppers)) or (self._in_dates and all(map(_DAY_OR_MONTH.fullmatch, uppers)))
        if (is_dates or are_batches(uppers)) and not (are_batches(lowers) and not _below(_below(rows))):
            self._in_dates = is_dates
            said = (
                f"the folders {listed(sorted(uppers), 3)} were"
                if len(uppers) > 1
                else f"the folder {show(min(uppers))} was"
            )
            kind = "dates" if is_dates else "batches"
            self.levels.notes.append(
                f"{said} taken as {kind}, and the folders in {'them' if len(uppers) > 1 else 'it'} as classes"
            )
            return self._pass_wrapping(self._pass_upper(rows), may_have_parts=False)
        if self._is_clear(rows, uppers, lowers, direct):
            return self._stop(rows)
        raise self._asked(uppers, lowers, direct)

    def _to_wanted(self, rows: Rows, is_deeper: bool) -> Rows:
        if self._wanted == self._depth:
            return self._stop(rows)
        if not is_deeper:
            raise RuleError(
                f"classes=level:{self._wanted} was asked for, and the folders of the batch have "
                f"{count(self._depth, 'level')} below those that wrap them."
            )
        self._depth += 1
        rows = self._pass_upper(rows)
        return (
            self._stop(rows)
            if self._wanted == self._depth
            else self._pass_wrapping(rows, may_have_parts=False)
        )

    def _is_clear(
        self, rows: Rows, uppers: Mapping[str, int], lowers: Mapping[str, int], direct: int
    ) -> bool:
        """Return whether the upper folders are the classes without asking, noting a level below that is no class."""
        pairs = {names[:2] for names, _ in rows if len(names) > 1}
        if max(Counter(upper for upper, _ in pairs).values()) == 1 or (direct and len(uppers) > 1):
            return True
        if all(is_container(name) or is_date(name) for name in lowers) or are_batches(lowers):
            held = [name for name in sorted(lowers) if part_of(name)]
            said = f"the folders {listed(sorted(lowers), 3)} belong to the classes of the folders that they lie in"
            self.levels.notes.append(said)
            if held:
                self.levels.warnings.append(
                    f"The folders {listed(held)} lie in class folders, and all their images are learned. To hold some "
                    "out, send train/<class>/… and test/<class>/…."
                )
            return True
        return False

    def _asked(self, uppers: Mapping[str, int], lowers: Mapping[str, int], direct: int) -> RuleError:
        at = self._depth
        left = f", with {count(direct, 'image')} outside of them left out" if direct else ""
        return RuleError(
            f"The folders can be read in two ways: {count(len(uppers), 'class', 'classes')} by the first level of "
            f"folders ({counted(uppers)}), or {count(len(lowers), 'class', 'classes')} by the second "
            f"({counted(lowers)}{left}). "
            f"Say which with -o classes=level:{at} or -o classes=level:{at + 1} (in a request ?classes=level:{at}).",
            remedies=[
                Remedy("classes", f"level:{at}", f"Read {listed(sorted(uppers), 3)} as classes"),
                Remedy("classes", f"level:{at + 1}", f"Read {listed(sorted(lowers), 3)} as classes"),
            ],
        )

    def _pass_upper(self, rows: Rows) -> Rows:
        self.levels.steps.append(lambda way: way.pass_by(None))
        return _below(rows)

    def _stop(self, rows: Rows) -> Rows:
        self._is_done = True
        return rows

    def _knows(self, uppers: Collection[str], lowers: Collection[str]) -> int:
        """The level, 1 or 2, whose folders the model knows as classes; 0 where that says nothing."""
        known = self._known()
        if not known:
            return 0
        above, below = ({normal_label(name) for name in names} for names in (uppers, lowers))
        labels = set(known)
        for is_level in (labels.issuperset, lambda names: not labels.isdisjoint(names)):
            first, second = is_level(above), is_level(below)
            if first != second:
                self.levels.decided_by |= labels & (above | below)
                return 1 if first else 2
        return 0


def _has_parts(rows: Rows) -> bool:
    """Return whether top folders are parts.

    They are where one is for training with class folders, or all are called so and some have any.
    """
    folders = [names for names, _ in rows]
    return part_rules.has_training_part(folders) or (
        all(part_of(names[0]) for names in folders) and any(len(names) > 1 for names in folders)
    )


def _branches(rows: Rows) -> bool:
    """Return whether there is a level of several folders before the first image, counted from the top."""
    while rows:
        if len({names[0] for names, _ in rows}) > 1:
            return True
        if any(len(names) == 1 for names, _ in rows):
            return False
        rows = _below(rows)
    return False


def _below(rows: Rows) -> Rows:
    return [(names[1:], number) for names, number in rows if len(names) > 1]


def _totals(rows: Rows) -> Counter[str]:
    """First name → images."""
    totals: Counter[str] = Counter()
    for names, number in rows:
        totals[names[0]] += number
    return totals
