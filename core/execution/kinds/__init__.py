"""The kinds of jobs, one file each; add another kind as a file in this folder and a line here.

The queue works the same for all: claim, lease, fence, strikes, events, pause, cancel. A worker
claims only kinds that are listed here.
"""

from core.execution.kinds.edit import EDIT
from core.execution.kinds.export import EXPORT
from core.execution.kinds.fetch import FETCH
from core.execution.kinds.kind import ClaimedJobContext, JobKindDefinition, JobOutcome
from core.execution.kinds.learn import LEARN
from core.execution.kinds.measure import MEASURE
from core.execution.kinds.validate import VALIDATE

__all__ = ["KINDS", "ClaimedJobContext", "JobKindDefinition", "JobOutcome"]

KINDS: dict[str, JobKindDefinition] = {
    kind.name: kind
    for kind in (
        LEARN,
        EDIT,
        VALIDATE,
        FETCH,
        EXPORT,
        MEASURE,
    )
}
