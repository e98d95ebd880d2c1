"""Why an attempt ended without a result, in words."""

from core.work.kinds.kind import Advice


def outgrown(bound: int, advice: Advice) -> str:
    """It took more memory than `bound` bytes."""
    return (
        f"The job took more than the {bound / 1e9:.1f} GB of memory that one job may have here "
        f"(PERENNIAL_JOB_MEMORY_BYTES). {advice.memory}"
    )


def overtime(most_s: float, advice: Advice) -> str:
    """It ran longer than `most_s` seconds."""
    return f"The job ran longer than the {_spoken(most_s)} that one job may have here {advice.time}"


def _spoken(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds:g} seconds"


def death(status: int | None) -> str:
    """Its process ended without a word; status: a code, or minus a signal; None: unknown."""
    if status is None:
        return "The job process ended without a word."
    if status < 0:
        return f"The job process was ended by signal {-status} (9 often means: out of memory)."
    return f"The job process ended with code {status} without a word."
