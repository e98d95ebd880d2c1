"""Texts that explain why an attempt ended without a result."""

from core.contract.jobs.job_event import JobFailedEvent
from core.execution.kinds.kind import JobLimitAdvice


def explain_memory_exceeded(bound: int, advice: JobLimitAdvice) -> str:
    """Explain to a person that the job used more memory than `bound` bytes."""
    return (
        f"The job took more than the {bound / 1e9:.1f} GB of memory that one job may have here "
        f"(PERENNIAL_JOB_MEMORY_BYTES). {advice.memory}"
    )


def explain_repeated_out_of_memory(
    error: JobFailedEvent, device: str, advice: JobLimitAdvice
) -> str:
    """Explain to a person that the job ran out of memory again after a retry.

    Args:
        device: cpu, cuda or auto.
    """
    figures = ""
    if error.peak_bytes is not None and error.free_bytes is not None:
        where = "of the GPU's memory" if device == "cuda" else "of memory"
        figures = (
            f" It held {error.peak_bytes / 1e9:.1f} GB {where} at its peak, and "
            f"{error.free_bytes / 1e9:.1f} GB were "
            "free."
        )
    return (
        f"The job ran out of memory twice.{figures} {advice.memory} The last error: {error.message}"
    )


def explain_job_overtime(most_s: float, advice: JobLimitAdvice) -> str:
    """Explain to a person that the job exceeded its time limit of `most_s` seconds."""
    return (
        f"The job ran longer than the {_format_duration(most_s)} that one job may have here "
        f"{advice.time}"
    )


def _format_duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds:g} seconds"


def explain_process_death(status: int | None) -> str:
    """Explain to a person that the job's process died without reporting a result.

    Args:
        status: exit code, or minus the number of a signal; None if unknown.
    """
    if status is None:
        return "The job process ended without a word."
    if status < 0:
        return f"The job process was ended by signal {-status} (9 often means: out of memory)."
    return f"The job process ended with code {status} without a word."
