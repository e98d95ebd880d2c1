"""How far a job is, as its row says and polling reads it."""

from core.protocol.document import Document, Number


class Progress(Document):
    """Of the phase under way; `at`: when it was written, in the database's clock; eta_s: seconds left of the phase.

    Of the whole job: `done`: the share of it, 0 to 1; `left_s`: seconds that it still takes; `costs`: seconds of each
    phase so far; `expected`: those to expect of each, in order, and `is_measured` whether an earlier job took them;
    `heard_at`: until when `costs` counts; `fence`: of the claim under which it was written. Older rows have none.
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
