"""Edit a model: learn its edited tasks again, and publish one version of the result.

Nothing of the edit is visible before the publishing transaction, which changes tasks and version
together. A lost attempt starts over, from the same rows.
"""

from pathlib import Path

from core.database.kinds import Kind as Name
from core.execution.editing.chain import EditChain
from core.execution.editing.facts import read_facts
from core.execution.kinds.kind import Kind, Work
from core.failpoints import hit_failpoint
from core.ingest.ingest import Stopped
from core.retention.damage import Marks, explain_damage_errors
from core.storage import Blobs


def _run_edit_job(work: Work) -> None:
    work.begin("prepare")
    facts = read_facts(work.db, work.settings, work.claim)
    blobs = Blobs(work.store, work.settings.make_folder("cache"), marks=Marks(work.db))
    chain = EditChain(work.db, blobs, work.settings, work.claim, facts, work.folder)
    with explain_damage_errors(work.db, facts.model.id):
        chain.edit_tasks()
        if facts.edit.way == "rename":
            work.publish(chain.write_renamed())
            return
        patch = chain.write_patch() if facts.edit.way == "patch" else None
        line = chain.begin() if patch is None else patch.line
    hit_failpoint("edit-prepared")
    made: Path | None = work.folder
    if patch is not None:
        made = work.process(patch.spec)
    for number in chain.tasks:
        if work.must_stop():
            raise Stopped
        with explain_damage_errors(work.db, facts.model.id):
            spec = chain.write_spec(line, number)
        made = work.process(spec)
        if made is None:
            return
        line = chain.advance(line, number, made)
        hit_failpoint("edit-learned")
    if made is None:
        return
    with explain_damage_errors(work.db, facts.model.id):
        chain.finish(line, made)
    hit_failpoint("edit-finished")
    work.publish(made)


EDIT = Kind(
    str(Name.EDIT), priority=1, longest_s=lambda settings: settings.max_job_s, run=_run_edit_job
)
