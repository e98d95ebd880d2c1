"""Errors of a source, raised before any of it is sent."""


class PackError(ValueError):
    """The source cannot be packed as a batch; the message says why and what to do."""


class SourceChanged(PackError):
    """A file of the source has changed since the batch was opened: open it again."""


class ExtraMissing(PackError):
    """A library needed for a source is not installed; the message names the install command."""


class PathOutsideFolder(PackError):
    """A path or link in the source leads out of its folder.

    Attributes:
        found: the sentence that names the path, without advice.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem} Only what is in the folder is sent; -o allow_outside=true "
            f"(allow_outside=True) sends this too."
        )
        self.found = problem


class Undecided(PackError):
    """The folder can be read as a batch in several ways; the message names options that decide.

    The classes that a model knows may decide too: open the folder again with `known_classes`.
    """
