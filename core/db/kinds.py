"""The kinds of jobs that can be asked for. What a kind does, and before which others, is in `core.work.kinds`."""

from enum import StrEnum


class Kind(StrEnum):
    """`Job.kind`."""

    LEARN = "learn"  # a task, at its place in the line of its model
    VALIDATE = "validate"  # decode a batch as a submit would, and report; nothing is learned
    FETCH = "fetch"  # bring pretrained weights, of which version 0 of a model is made
    EXPORT = "export"  # make a download of a version that takes more than copying
