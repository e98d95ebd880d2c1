"""The kinds of jobs, one file each; add another kind as a file in this folder and a line here.

The queue works the same for all: claim, lease, fence, strikes, events, pause, cancel. A worker
claims only kinds that are listed here.
"""

from core.work.kinds.export import EXPORT
from core.work.kinds.fetch import FETCH
from core.work.kinds.kind import Done, Kind, Work
from core.work.kinds.learn import LEARN
from core.work.kinds.validate import VALIDATE

__all__ = ["KINDS", "Done", "Kind", "Work"]

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        LEARN,
        VALIDATE,
        FETCH,
        EXPORT,
    )
}
