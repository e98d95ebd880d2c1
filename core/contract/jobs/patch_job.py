"""Specification of a process that patches a version: `spec.json` of an edit without images."""

from typing import Literal

from core.contract.jobs.job_spec import LearnJobSpec

PATCH = "patch"


class ClassPatchJobSpec(LearnJobSpec):
    """Specification of a job that merges, drops or renames classes of a version without training.

    Its `task` is one that the patched version is measured on; its training part has no images. The
    earlier tasks have their classes and labels after the patch.

    Attributes:
        work: the kind of work.
        names: classes of the patched version, in the order of its outputs.
        sources: numbers of the parent's classes that each of them is made of, ascending.
    """

    work: Literal["patch"]
    names: list[str]
    sources: list[list[int]]
