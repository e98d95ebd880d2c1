"""Edit a model: learn its edited tasks again, and publish one version of the result.

Nothing of the edit is visible before the publishing transaction, which changes tasks and version
together. A lost attempt starts over, from the same rows.
"""

from pathlib import Path

from core.database.kinds import JobKind as Name
from core.execution.editing.edit_rows import read_and_check_edit_job_inputs
from core.execution.editing.job_chain import EditProcessChain
from core.execution.kinds.kind import ClaimedJobContext, JobKindDefinition
from core.failpoints import hit_failpoint
from core.ingest.ingest import IngestStopped
from core.retention.damage import DatabaseDamageMarks, reword_damage_errors_of_model
from core.storage import Blobs


def _run_edit_job(work: ClaimedJobContext) -> None:
    work.begin("prepare")
    facts = read_and_check_edit_job_inputs(work.db, work.settings, work.claim)
    blobs = Blobs(
        work.store, work.settings.make_folder("cache"), marks=DatabaseDamageMarks(work.db)
    )
    chain = EditProcessChain(work.db, blobs, work.settings, work.claim, facts, work.folder)
    with reword_damage_errors_of_model(work.db, facts.model.id):
        chain.store_edited_data_of_all_tasks()
        if facts.edit.way == "rename":
            work.publish(chain.write_result_of_renaming_edit())
            return
        patch = chain.write_class_patch_spec() if facts.edit.way == "patch" else None
        starting_version = chain.load_first_starting_version() if patch is None else patch[0]
    hit_failpoint("edit-prepared")
    result_folder: Path | None = work.folder
    if patch is not None:
        result_folder = work.process(patch[1])
    for number in chain.relearned_tasks:
        if work.must_stop():
            raise IngestStopped
        with reword_damage_errors_of_model(work.db, facts.model.id):
            spec = chain.write_relearning_spec(starting_version, number)
        result_folder = work.process(spec)
        if result_folder is None:
            return
        starting_version = chain.build_next_starting_version(
            starting_version, number, result_folder
        )
        hit_failpoint("edit-learned")
    if result_folder is None:
        return
    with reword_damage_errors_of_model(work.db, facts.model.id):
        chain.complete_result_with_unchanged_tasks(starting_version, result_folder)
    hit_failpoint("edit-finished")
    work.publish(result_folder)


EDIT = JobKindDefinition(
    str(Name.EDIT), priority=1, longest_s=lambda settings: settings.max_job_s, run=_run_edit_job
)
