"""Inputs and results of the rules: options, rows of label tables, bad entries, and the error that ends a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Part = Literal["", "train", "test", "validation"]
RuleErrorKind = Literal["archive", "labels", "too_large", "hostile"]


class Remedy(NamedTuple):
    """An option that settles how a batch is read: its name and value, and what it does, as a button says it."""

    option: str
    value: str
    does: str


class RuleError(Exception):
    """A batch that cannot be read; the message says what was found, what is expected and what to do.

    `kind` tells the server which typed error to answer with; `remedies` are the options that the message names.
    """

    def __init__(
        self, message: str, kind: RuleErrorKind = "archive", remedies: Sequence[Remedy] = ()
    ) -> None:
        super().__init__(message)
        self.kind: RuleErrorKind = kind
        self.remedies = tuple(remedies)


class TableRow(NamedTuple):
    """A labelled image of a table: its name as the table writes it, its label, its part, and where it was found.

    `where` names file and line or key, such as `line 12 of labels.csv`.
    """

    image: str
    label: str
    part: Part
    where: str


class BadEntry(NamedTuple):
    """An entry that is left out: where it was found, and the reason as the end of a sentence."""

    where: str
    reason: str


@dataclass(frozen=True)
class ReadingOptions:
    """Choices of the sender where the rules alone would ask.

    `layout`: `folders` reads folder names as classes whatever lies beside them; `one_class`: a single class is meant;
    `class_level`: the level of folders that names the classes, from 1, below wrapping folders and parts; `max_bad`: the
    share of bad entries, 0 to 1, up to which a batch is read; `image_column`, `label_column`: columns of the label
    table; `table`: the file that is the label table; `names_pattern`: labels stand in the names of files, such as
    `{label}_{number}`; `names`: the encoding of names in a zip.
    """

    layout: Literal["auto", "folders"] = "auto"
    one_class: bool = False
    class_level: int | None = None
    max_bad: float = 0.05
    image_column: str = ""
    label_column: str = ""
    table: str = ""
    names_pattern: str = ""
    names: str = ""
