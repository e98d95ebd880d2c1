"""A job whose turn it is not, though a worker has it."""


class PutOff(Exception):
    """It is not this job's turn: it is given back without a strike, for so many seconds at least."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds
