"""Errors of a source, raised before any of it is sent."""


class PackError(ValueError):
    """A source cannot be packed; the message says what was found, what is possible and what
    to do.
    """


class SourceChanged(PackError):
    """A file has changed since the batch was opened: open the batch again."""


class ExtraMissing(PackError):
    """A source needs a library that is not installed; the message names the install command."""


class LeavesFolder(PackError):
    """A path or link of a source leads out of its folder.

    Attributes:
        found: the sentence that names the path, without advice.
    """

    def __init__(self, found: str) -> None:
        super().__init__(
            f"{found} Only what is in the folder is sent; -o allow_outside=true "
            f"(allow_outside=True) sends this too."
        )
        self.found = found


class Undecided(PackError):
    """A folder can be read in several ways; the message names the options that decide.

    The classes that a model knows may decide too: open the folder again with `known_classes`.
    """
