"""One hostile input: what is sent where, and the only answers that are right."""

from collections.abc import Callable
from dataclasses import dataclass, field

TASKS, PREDICT, BASES, MODELS = (
    "/v1/models/target/tasks",
    "/v1/models/target/versions/latest/predict",
    "/v1/bases?architecture=small-cnn",
    "/v1/models",
)


@dataclass(frozen=True)
class Case:
    """A request that attacks.

    Attributes:
        group: archives, arrays, pictures, weights, bodies or uploads.
        body: makes the body; of a `raw` case the whole exchange with `{key}` for the key, in pieces
            that are sent with `pause_s` between them.
        answers: the right ones, as "422 archive-hostile" or a status alone; of a raw case also
            "closed".
        row: of a picture, the words of its line in a batch's report; empty where it is accepted.
    """

    group: str
    name: str
    body: Callable[[], bytes] | Callable[[], list[bytes]]
    answers: tuple[str, ...]
    path: str = TASKS
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    raw: bool = False
    pause_s: float = 0.0
    row: str = ""

    def right(self, status: int | None, code: str) -> bool:
        """True if an answer of this status and problem code is one of the right ones; None: it was
        cut.
        """
        said = ("closed",) if status is None else (str(status), f"{status} {code}")
        return any(text in self.answers for text in said)
