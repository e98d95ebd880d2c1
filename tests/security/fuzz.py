"""Mutation fuzzing of every reader of untrusted bytes.

`python tests/security/fuzz.py --seconds 900` runs it. A child process reads damaged inputs
(`mutations`) under a memory limit, and this process watches it. A finding is an untyped exception,
a death, a read that takes more than `--bound-s` seconds or one that exceeds the memory limit. It is
named by target and number, which make the same input again:
`--target tar --first 4711 --executions 1`.
"""

import argparse
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.ingest import images
from core.ingest.limits import ArchiveLimits
from tests.security.mutations import TARGETS, mutate_seed
from tests.security.readers import read_input

BOUND_S = 5.0
"""CPU seconds that one input may take.

The watcher ends a child that spends four times as long on one input.
"""
MEMORY_BYTES = ArchiveLimits().decoder_memory_bytes
_SLICE = 2000
_SHOWN = 20


@dataclass
class Tally:
    """The results of one target's executions."""

    executions: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    slowest: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.executions += other.executions
        self.seconds += other.seconds
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        self.outcomes += other.outcomes
        self.findings += other.findings


def run_inputs(
    target: str, first: int, count: int, bound_s: float = BOUND_S, cell: mmap.mmap | None = None
) -> Tally:
    """Read inputs first … first + count - 1 of a target in this process.

    `cell` always names the current input.
    """
    tally = Tally()
    began = time.monotonic()
    for number in range(first, first + count):
        if cell is not None:
            struct.pack_into("<Q", cell, 0, number + 1)
        data = mutate_seed(target, number)
        before = time.process_time()
        try:
            outcome = read_input(target, data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
            outcome = f"FINDING {type(error).__name__}"
            tally.findings.append(f"{target} {number}: {type(error).__name__}: {str(error)[:200]}")
        took = time.process_time() - before
        if took > bound_s:
            tally.findings.append(f"{target} {number}: {took:.1f} s for {len(data)} bytes")
        if took > tally.slowest_s:
            tally.slowest_s, tally.slowest = took, number
        tally.outcomes[outcome] += 1
        tally.executions += 1
    tally.seconds = time.monotonic() - began
    return tally


def run_inputs_in_child(target: str, first: int, count: int, bound_s: float) -> Tally:
    """Run `run_inputs` in a child with limits.

    An input that ends the child is a finding, and the rest is read after it.
    """
    whole = Tally()
    cell = mmap.mmap(-1, 8)
    while count > 0:
        struct.pack_into("<Q", cell, 0, 0)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _run_child(target, first, count, bound_s, cell, writing)
        os.close(writing)
        status = _wait_for_child(child, cell, 4 * bound_s)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        if status == 0 and said:
            told = json.loads(said)
            told["outcomes"] = Counter(told["outcomes"])
            whole.add(Tally(**told))
            return whole
        at = struct.unpack_from("<Q", cell)[0] - 1
        whole.findings.append(f"{target} {at}: ended its process ({_describe_exit(status)})")
        whole.outcomes[f"FINDING {_describe_exit(status)}"] += 1
        whole.executions += at - first + 1
        count -= at - first + 1
        first = at + 1
    return whole


def _run_child(
    target: str, first: int, count: int, bound_s: float, cell: mmap.mmap, writing: int
) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtiff speaks
    images.limit_decoding_process_resources(MEMORY_BYTES, 1 << 20)
    tally = run_inputs(target, first, count, bound_s, cell)
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(json.dumps(vars(tally)).encode())
    os._exit(0)


def _wait_for_child(child: int, cell: mmap.mmap, limit_s: float) -> int:
    """Return the child's wait status; kill the child if it spends too long on one input."""
    at, since = b"", time.monotonic()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if cell[:8] != at:
            at, since = cell[:8], time.monotonic()
        elif time.monotonic() - since > limit_s:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def _describe_exit(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit {os.waitstatus_to_exitcode(status)}"


def main() -> int:
    """Fuzz and print a table; return 1 if there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--target", choices=sorted(TARGETS), action="append", help="default: all in turn"
    )
    parser.add_argument("--executions", type=int, help="per target")
    parser.add_argument("--seconds", type=float, help="in all")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first input (default 0)"
    )
    parser.add_argument("--bound-s", type=float, default=BOUND_S)
    asked = parser.parse_args()
    targets = asked.target or list(TARGETS)
    most = asked.executions or (1 << 62 if asked.seconds else 10_000)
    end = time.monotonic() + (asked.seconds or 1e9)
    tallies = {target: Tally() for target in targets}
    at = asked.first
    while at < asked.first + most and time.monotonic() < end:
        count = min(_SLICE, asked.first + most - at)
        for target in targets:
            if time.monotonic() < end:
                tallies[target].add(run_inputs_in_child(target, at, count, asked.bound_s))
        at += count
    return _print_report(tallies)


def _print_report(tallies: dict[str, Tally]) -> int:
    print(
        f"{'target':12} {'executions':>11} {'per s':>7} {'accepted':>9} {'outcomes':>8}  slowest "
        f"(number)"
    )
    for target, tally in tallies.items():
        rate = tally.executions / tally.seconds if tally.seconds else 0.0
        print(f"{target:12} {tally.executions:11,} {rate:7,.0f} {tally.outcomes['accepted']:9,} "
              f"{len(tally.outcomes):8}  {1000 * tally.slowest_s:.0f} ms "
              f"({tally.slowest})")  # fmt: skip
    findings = [line for tally in tallies.values() for line in tally.findings]
    executions, seconds = (
        sum(t.executions for t in tallies.values()),
        sum(t.seconds for t in tallies.values()),
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(f"{executions:,} executions in {seconds:.0f} s, {executions / max(seconds, 1e-9):,.0f} "
          f"per s, {sum(len(t.outcomes) for t in tallies.values())} distinct outcomes, peak memory "
          f"{peak} MiB, {len(findings)} findings")  # fmt: skip
    for line in findings[:_SHOWN]:
        print("FINDING", line)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
