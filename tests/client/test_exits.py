"""The exit statuses: one for each way in which a command ends, all of them in the documentation."""

from pathlib import Path

import pytest

from perennial import errors
from perennial.cli.exits import MEANINGS, ExitStatus, choose_exit_status_for_error
from perennial.cli.main import cli

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
PROBLEM = (409, {"detail": "…"})
ENDS = {
    errors.PerennialError("…"): 1,
    errors.ConfigError("…"): 2,
    errors.UndecidedBatch("…"): 2,
    errors.NoKey("…"): 4,
    errors.ServiceUnreachable("…"): 5,
    errors.DigestMismatch("…"): 1,
    errors.BadAnswer("…"): 1,
    errors.WaitTimeout("…"): 14,
    errors.BaseUnavailable("…"): 15,
    errors.Rejected("…"): 11,
    errors.APIError(*PROBLEM): 1,
    errors.Invalid(*PROBLEM): 1,
    errors.Unauthorized(*PROBLEM): 4,
    errors.Forbidden(*PROBLEM): 4,
    errors.NotFound(*PROBLEM): 3,
    errors.Conflict(*PROBLEM): 1,
    errors.TooLarge(*PROBLEM): 1,
    errors.TooManyRequests(*PROBLEM): 5,
    errors.Unavailable(*PROBLEM): 5,
    errors.ArchiveRejected(*PROBLEM): 11,
    errors.JobEnded("…", None): 1,  # type: ignore[arg-type]
    errors.GateHeld("…", None): 10,  # type: ignore[arg-type]
    errors.JobRejected("…", None): 11,  # type: ignore[arg-type]
    errors.JobFailed("…", None): 12,  # type: ignore[arg-type]
    errors.BaseFailed("…", None): 15,  # type: ignore[arg-type]
    errors.JobCancelled("…", None): 13,  # type: ignore[arg-type]
}


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_an_error_ends_a_command_with_its_status(error: errors.PerennialError) -> None:
    assert choose_exit_status_for_error(error) == ENDS[error]


def test_every_error_of_the_client_has_a_status_here() -> None:
    def collect_subclasses(kind: type) -> set[type]:
        return {kind}.union(
            *(
                collect_subclasses(one)
                for one in kind.__subclasses__()
                if one.__module__ == kind.__module__
            )
        )

    assert collect_subclasses(errors.PerennialError) == {type(error) for error in ENDS}


def test_the_documentation_and_the_help_have_every_status_and_no_other() -> None:
    rows = [line.strip("| ").split(" | ") for line in REFERENCE.read_text().splitlines()]
    told = {row[0]: row[1] for row in rows if len(row) == 2 and row[0].isdigit()}
    assert told == {str(status.value): MEANINGS[status] for status in ExitStatus}
    help_text = " ".join((cli.help or "").split())
    assert all(
        f"{status.value} {MEANINGS[status]}".replace("`", "") in help_text for status in ExitStatus
    )
