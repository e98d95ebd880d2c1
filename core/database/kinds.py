"""The kinds of jobs; `core.execution.kinds` defines their work and priority."""

from enum import StrEnum


class JobKind(StrEnum):
    """Kinds of jobs, as stored in `Job.kind`."""

    LEARN = "learn"  # learn a task, at its place in the lineage of its model
    VALIDATE = "validate"  # decode a batch as a submission would, and report; nothing is learned
    FETCH = "fetch"  # fetch pretrained weights, from which version 0 of a model is made
    MEASURE = "measure"  # measure a classifier that came with the model, on held-out images
    EXPORT = "export"  # make a download of a version in a slow format
    EDIT = "edit"  # change labels, images or classes that a model was taught
