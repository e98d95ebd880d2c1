"""A short, repeatable round of the fuzzers (`fuzz.py` is the long one), and that they see what they
look for.
"""

import os
import signal
import time

import pytest

from core.errors import ArchiveInvalid
from tests.security import fuzz, mutations, readers
from tests.security.mutations import TARGETS, mutate_seed

EXECUTIONS = 500
BOUND_S = 60.0
"""CPU seconds: a hang is found, and no machine is too slow. `fuzz.py` asks for more."""


@pytest.mark.parametrize("target", TARGETS)
def test_a_damaged_input_is_read_or_refused_by_a_typed_error(target: str) -> None:
    tally = fuzz.run_inputs_in_child(target, 0, EXECUTIONS, BOUND_S)
    assert tally.findings == []
    assert tally.executions == EXECUTIONS
    assert (
        tally.outcomes["accepted"] > 0 and len(tally.outcomes) > 3
    )  # edits neither break everything nor nothing


@pytest.mark.parametrize("target", TARGETS)
def test_an_input_is_made_again_by_its_number_at_any_time(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [mutate_seed(target, number) for number in range(8)]
    mutations._build_seeds.cache_clear()
    next_year = time.time() + 365 * 86_400
    monkeypatch.setattr(time, "time", lambda: next_year)
    assert [mutate_seed(target, number) for number in range(8)] == first


def test_numbers_make_different_inputs() -> None:
    assert len({mutate_seed("tar", number) for number in range(50)}) > 40


@pytest.mark.parametrize(
    "what", ["an untyped error", "a death", "a server's error", "a message for no person"]
)
def test_planted_faults_of_a_reader_are_found_by_number_and_the_rest_is_read(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = mutate_seed("json", 3)

    def read_with_planted_fault(data: bytes) -> None:
        if data != poison:
            return
        if what == "a death":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "a message for no person":
            raise ArchiveInvalid("\x1b[2J")
        if what == "a server's error":
            error = ArchiveInvalid("no")
            error.status = 500  # type: ignore[misc]
            raise error
        raise KeyError("name")

    monkeypatch.setitem(readers._READERS, "json", read_with_planted_fault)
    tally = fuzz.run_inputs_in_child("json", 0, 10, BOUND_S)
    assert len(tally.findings) == 1 and tally.findings[0].startswith("json 3: ")
    assert tally.executions == 10
