"""Progress of a job, as its row stores it and polling reads it."""

from core.contract.document import Document, Number


class JobProgress(Document):
    """Progress of the job's current phase and of the whole job; older rows lack the latter.

    Attributes:
        at: when it was written, by the database's clock.
        eta_s: seconds left of the phase.
        done: share of the whole job, 0 to 1.
        left_s: seconds that the whole job is expected to take from then on.
        costs: seconds spent in each phase so far.
        expected: expected seconds of each phase, in order.
        is_measured: whether an earlier job took these seconds.
        heard_at: time up to which `costs` counts.
        fence: fence of the claim under which it was written.
    """

    phase: str | None = None
    at: float | None = None
    images_per_s: Number | None = None
    eta_s: Number | None = None
    epoch: int | None = None
    step: int | None = None
    total_steps: int | None = None
    images: int | None = None
    loss: Number | None = None
    done: Number | None = None
    left_s: Number | None = None
    costs: dict[str, float] | None = None
    expected: dict[str, float] | None = None
    is_measured: bool | None = None
    heard_at: float | None = None
    fence: int | None = None
