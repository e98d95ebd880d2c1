"""How far a job is, as its row says and polling reads it."""

from core.protocol.document import Document, Number


class Progress(Document):
    """Of the phase under way; `at`: when it was written, in the database's clock; eta_s: seconds left of the phase."""

    phase: str | None = None
    at: float | None = None
    images_per_s: Number | None = None
    eta_s: Number | None = None
    epoch: int | None = None
    step: int | None = None
    total_steps: int | None = None
    images: int | None = None
    loss: Number | None = None
