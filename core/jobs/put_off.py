"""The exception for a job that must wait although a worker has claimed it."""


class PutOff(Exception):
    """Signal that it is not this job's turn: it is released without a strike, for at least `seconds`."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds
