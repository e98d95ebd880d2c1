"""Patterns of image paths in an edit, such as `cat/anna*`, and the images that they match."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from sqlalchemy import select

from core.contract.responses.task_image import Split
from core.database.tables import Task
from core.edits.operations import Operation
from core.errors import Invalid, NotFound
from core.ingest.findings.traces import read_image_fingerprints
from core.lineage import lineage
from core.lineage.coverage import list_taught_tasks
from core.requests.actor import Actor, find_model
from core.requests.resources import UseCaseResources

MAX_MATCHES = 100_000
"""Images that the patterns of one edit may match."""


def expand_image_patterns_in_operations(
    resources: UseCaseResources, actor: Actor, model: str, operations: Sequence[Operation]
) -> list[Operation]:
    """Replace path patterns in edit operations by the numbers of the images that they match.

    Raises:
        NotFound: a pattern matches no image.
        Invalid: the patterns match too many images.
    """
    # Paths are stored in one file per task: without a pattern, none of them is fetched.
    if not any(one.remove is not None and one.remove.name is not None for one in operations):
        return list(operations)
    paths = _read_image_paths_of_learned_tasks(resources, actor, model)
    resolved: list[Operation] = []
    for operation in operations:
        remove = operation.remove
        if remove is None or remove.name is None:
            resolved.append(operation)
            continue
        # `fnmatchcase` below, since `fnmatch` follows the case rules of the service's own system.
        matched = [
            Operation.model_validate({"remove": {"task": task, "image": row, "part": part}})
            for (task, part), names in paths.items()
            if remove.task in (None, task)
            for row, name in enumerate(names)
            if fnmatchcase(name, remove.name)
        ]
        if not matched:
            raise NotFound(
                f"No learned image has a path like {remove.name!r}. The list of a task's images has "
                f"their paths."
            )
        resolved += matched
        # After each pattern, so that many broad ones cannot fill the memory before the refusal.
        if len(resolved) > MAX_MATCHES:
            raise Invalid(f"The patterns match more than {MAX_MATCHES:,} images; narrow them.")
    # Two patterns may match the same image, and two operations on one image are refused later.
    return list({one.model_dump_json(): one for one in resolved}.values())


def _read_image_paths_of_learned_tasks(
    resources: UseCaseResources, actor: Actor, model: str
) -> Mapping[tuple[int, Split], list[str]]:
    """Return the image paths of each task and part, for all tasks that the newest version has
    learned.
    """
    with resources.db.read() as session:
        row = find_model(session, actor, model)
        head = lineage.find_version_next_task_starts_from(session, row)
        numbers = [] if head is None else list_taught_tasks(head.manifest)
        query = select(Task.number, Task.traces_sha256).where(
            Task.model_id == row.id,
            Task.number.in_(numbers),
            Task.traces_sha256.is_not(None),
            Task.held_out_deleted_at.is_(None),
            Task.data_deleted_at.is_(None),
        )
        files = {number: digest for number, digest in session.execute(query) if digest is not None}
    paths: dict[tuple[int, Split], list[str]] = {}
    for number, digest in sorted(files.items()):
        traces = read_image_fingerprints(resources.blobs.fetch_verified_file(digest))
        paths[number, "train"] = traces.names[: len(traces.train)]
        paths[number, "held_out"] = traces.names[len(traces.train) :]
    return paths
