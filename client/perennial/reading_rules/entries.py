"""Inputs and results of the rules: options, rows of label tables, bad entries, and errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Part = Literal["", "train", "test", "validation"]
RuleErrorKind = Literal["archive", "held_out", "labels", "too_large", "hostile"]
"""`held_out`: the batch has only held-out images, and the options do not allow that."""


class BatchReadingRemedy(NamedTuple):
    """Option that a sender can set to settle how a batch is read.

    Attributes:
        option: name of the option.
        value: its value.
        does: its effect, worded for a button.
    """

    option: str
    value: str
    does: str


class UnreadableBatchError(Exception):
    """Error: the rules cannot read a batch; it carries remedies.

    The message says what was found, what is expected and what to do. `kind` selects the server's
    typed error; `remedies` are the options that the message names.
    """

    def __init__(
        self,
        message: str,
        kind: RuleErrorKind = "archive",
        remedies: Sequence[BatchReadingRemedy] = (),
    ) -> None:
        super().__init__(message)
        self.kind: RuleErrorKind = kind
        self.remedies = tuple(remedies)


class LabelTableRow(NamedTuple):
    """A row of a label table: an image and its label.

    Attributes:
        image: its name as the table has it.
        label: its label.
        part: its part.
        where: file and line or key, such as `line 12 of labels.csv`.
    """

    image: str
    label: str
    part: Part
    where: str


class LeftOutLabelTableEntry(NamedTuple):
    """An entry of a label table that is left out: its place, and the reason as the end of a
    sentence.
    """

    where: str
    reason: str


@dataclass(frozen=True)
class BatchReadingOptions:
    """Options of the sender for reading a batch, such as its layout and label table.

    Attributes:
        layout: `folders` reads folder names as classes regardless of other files.
        one_class: the batch has a single class.
        class_level: level of the folders that name the classes, from 1, below wrapping folders and
            parts.
        max_bad: share of bad entries, 0 to 1, up to which a batch is read.
        image_column, label_column: columns of the label table.
        table: file that is the label table.
        names_pattern: pattern of labels in file names, such as `{label}_{number}`.
        names: encoding of names in a zip.
        held_out_alone: True if a batch may have held-out images alone. No sender chooses this.
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
    held_out_alone: bool = False
