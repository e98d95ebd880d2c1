"""Measure which share of seeded faults the tests find.

    python -m tests.mutants plant FAULTS [--seed 30] [--each 15]
    python -m tests.mutants run FAULTS RESULTS [--code DIR] [--first OTHER_RESULTS] [--lanes 2]

`plant` draws faults from the syntax trees of `api`, `core`, `worker` and the client: a comparison
changed, a condition negated, a number off by one, a call or a `raise` left out. The same seed gives
the same faults. `run` puts each fault into a copy of the checkout DIR and runs the fast tests that
lie nearest to it. All faults that these do not find are then put into one copy together, and every
test that CI runs is run there; the tests that fail are run once more with each of these faults
alone. RESULTS says for each fault which test found it. A run that was interrupted continues where
it stopped.

Two commits are compared with the faults of the older one, as long as the text of each is still in
its file. With the results of one, the other tries for each fault the test that found it there
before all others.
"""

import argparse
import ast
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tests import changed

PACKAGES = ("api", "core", "worker", "client")
GENERATED = (
    "client/perennial/_sync/",
    "client/perennial/_types.py",
    "client/perennial/_formats.py",
)
NEAREST_FILES = 8
NEAREST_LIMIT_S = 420
WHOLE_LIMIT_S = 5400
MOST_REPEATED = 60
FAST, IN_CI = "not slow and not campaign", "not campaign"
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


@dataclass(frozen=True)
class Fault:
    """One change of a file.

    Attributes:
        path: relative to the checkout.
        start: index of the first character of `before`.
        before, after: the text and its replacement.
        kind: the operator that made it.
    """

    path: str
    start: int
    before: str
    after: str
    kind: str

    def apply(self, checkout: Path) -> None:
        """Put the fault into a checkout.

        Raises:
            ValueError: the text has moved and is not in the file exactly once.
        """
        file = checkout / self.path
        text = file.read_text()
        start = self.start
        if text[start : start + len(self.before)] != self.before:
            start = text.find(self.before)
            if start < 0 or text.count(self.before) != 1:
                raise ValueError(
                    f"{self.path}: the text of the fault is not there once: {self.before!r}"
                )
        file.write_text(text[:start] + self.after + text[start + len(self.before) :])
        self._generate(checkout)

    def revert(self, checkout: Path, code: Path) -> None:
        """Restore the file from another checkout."""
        shutil.copyfile(code / self.path, checkout / self.path)
        self._generate(checkout)

    def _generate(self, checkout: Path) -> None:
        """Generate the blocking client again where the fault is in the asynchronous one."""
        if self.path.startswith("client/perennial/_async/"):
            subprocess.run([sys.executable, "-m", "tools.client_sync"], cwd=checkout, check=True)


def draw_faults(checkout: Path, seed: int, each: int) -> list[Fault]:
    """Draw the same number of faults from each package."""
    generator = random.Random(seed)
    drawn = []
    for package in PACKAGES:
        paths = sorted((checkout / package).rglob("*.py"))
        names = [path.relative_to(checkout).as_posix() for path in paths]
        candidates = [
            fault
            for name in names
            if not name.startswith(GENERATED)
            for fault in find_faults(name, (checkout / name).read_text())
        ]
        drawn += generator.sample(candidates, each)
    return drawn


def find_faults(path: str, text: str) -> Iterator[Fault]:
    """Yield all faults that the operators can make of a file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines(keepends=True)

    def compute_character_offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for node, kind, after in _find_mutations(ast.parse(text)):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = (
            compute_character_offset(node.lineno, node.col_offset),
            compute_character_offset(node.end_lineno, node.end_col_offset),
        )
        yield Fault(path, start, text[start:end], after, kind)


def _find_mutations(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Yield a node, the operator, and the text in the node's place.
    Annotations and docstrings stay as they are.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        waiting += _list_children(node)
        match node:
            case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
                turned = ast.Compare(node.left, [_COMPARISONS[type(op)]()], node.comparators)
                yield node, "comparison", f"({ast.unparse(turned)})"
            case ast.BoolOp():
                other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                yield node, "and/or", f"({ast.unparse(ast.BoolOp(other, node.values))})"
            case ast.UnaryOp(op=ast.Not()):
                yield node, "not", f"({ast.unparse(node.operand)})"
            case ast.BinOp() if type(node.op) in _OPERATIONS and not _is_string(node):
                changed_node = ast.BinOp(node.left, _OPERATIONS[type(node.op)](), node.right)
                yield node, "operation", f"({ast.unparse(changed_node)})"
            case ast.Constant(value=bool()):
                yield node, "truth", str(not node.value)
            case ast.Constant(value=int() as number):
                yield node, "number", f"({number} + 1)"
            case ast.If() | ast.IfExp() | ast.While() if ast.unparse(node.test) != "TYPE_CHECKING":
                yield node.test, "condition", f"(not ({ast.unparse(node.test)}))"
            case ast.Raise() | ast.Expr(value=ast.Call() | ast.Await()):
                yield node, "left out", "pass"
            case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
                yield node, "returns nothing", "return None"


def _list_children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        yield from (
            child
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        )


def _is_string(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


class Measurement:
    """Runs tests of a checkout with faults in it, and records what was found after each.

    Args:
        code: the checkout.
        faults: from `draw_faults`.
        results: a JSON file; what it says already is not run again.
        first: number of a fault → the test that found it in another checkout, which is tried before
            the others.
    """

    def __init__(
        self,
        code: Path,
        faults: list[Fault],
        results: Path,
        first: dict[str, str | None] | None = None,
    ) -> None:
        self._code = code
        self._faults = faults
        self._results = results
        self._first = first or {}
        self._found: dict[str, str | None] = (
            json.loads(results.read_text()) if results.exists() else {}
        )
        self._lock = threading.Lock()

    def run_nearest(self, lanes: int) -> None:
        """Run the nearest tests with each fault alone, `lanes` at a time."""
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(self._faults)):
            if str(number) not in self._found:
                waiting.put(number)

        def measure_waiting_faults() -> None:
            with tempfile.TemporaryDirectory() as folder:
                copy = _copy_tracked_files(self._code, Path(folder))
                while (number := _take_number(waiting)) is not None:
                    fault = self._faults[number]
                    nearest = find_nearest_tests(self._code, fault.path)[:NEAREST_FILES]
                    fault.apply(copy)
                    known = self._first.get(str(number)) or ""
                    failed = (
                        _run_tests(copy, IN_CI, [known], NEAREST_LIMIT_S) if "::" in known else []
                    )
                    if known not in failed:
                        failed = (
                            _run_tests(copy, FAST, ["-x", *nearest], NEAREST_LIMIT_S)
                            if nearest
                            else []
                        )
                    fault.revert(copy, self._code)
                    self._record(number, next(iter(failed), None))

        threads = [threading.Thread(target=measure_waiting_faults) for _ in range(lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_all(self) -> None:
        """Run all tests with all faults that are not found yet; then those that fail, with each
        alone.
        """
        left = [
            number for number in range(len(self._faults)) if self._found.get(str(number)) is None
        ]
        with tempfile.TemporaryDirectory() as folder:
            copy = _copy_tracked_files(self._code, Path(folder))
            while left:
                for number in left:
                    self._faults[number].apply(copy)
                options = ["-n", "3", "--dist", "loadfile"]
                failed = _run_tests(copy, IN_CI, options, WHOLE_LIMIT_S)
                for number in left:
                    self._faults[number].revert(copy, self._code)
                failed = self._leave_out_failing_before(copy, failed)
                found_now = [number for number in left if self._confirm(copy, number, failed)]
                if not found_now:
                    return
                left = [number for number in left if number not in found_now]

    def _leave_out_failing_before(self, copy: Path, failed: list[str]) -> list[str]:
        """Leave out tests that fail without any fault, for a reason of the machine or of the
        environment.
        """
        if not any("::" in test for test in failed):
            print(f"all faults together: {', '.join(failed) or 'no test failed'}", flush=True)
            return []
        before = _run_tests(copy, IN_CI, failed, WHOLE_LIMIT_S)
        return [test for test in failed if test not in before]

    def _confirm(self, copy: Path, number: int, failed: list[str]) -> bool:
        """Run tests that failed with one fault alone."""
        if not failed:
            return False
        fault = self._faults[number]
        fault.apply(copy)
        alone = _run_tests(copy, IN_CI, ["-x", *failed[:MOST_REPEATED]], WHOLE_LIMIT_S)
        fault.revert(copy, self._code)
        if alone:
            self._record(number, alone[0])
        return bool(alone)

    def _record(self, number: int, test: str | None) -> None:
        with self._lock:
            self._found[str(number)] = test
            self._results.write_text(json.dumps(self._found, indent=1))
            fault = self._faults[number]
            print(f"{number:3} {fault.path} {fault.kind}: {test or 'not found'}", flush=True)

    def summarize(self) -> str:
        """Return the share found in each package and in all, one line each."""
        lines = []
        for package in (*PACKAGES, ""):
            of_it = [n for n, fault in enumerate(self._faults) if fault.path.startswith(package)]
            found = sum(self._found.get(str(number)) is not None for number in of_it)
            lines.append(f"{package or 'all':8} {found} of {len(of_it)} found")
        return "\n".join(lines)


def find_nearest_tests(checkout: Path, path: str) -> list[str]:
    """Return the test files that import a file or lie in the folder that mirrors its own.

    Those with its name come first, then those of that folder, then those with the shortest
    chain of imports.
    """
    modules, importers = _read_imports(checkout)
    steps = {path: 0}
    waiting = deque([path])
    while waiting:
        here = waiting.popleft()
        for there in importers.get(here, ()):
            if there not in steps:
                steps[there] = steps[here] + 1
                waiting.append(there)
    mirrored = f"tests/{Path(path).parent.as_posix().replace('client/perennial', 'client')}/"

    def rank_test_file(name: str) -> tuple[bool, bool, int, str]:
        has_its_name = Path(name).stem == f"test_{Path(path).stem}"
        return not has_its_name, not name.startswith(mirrored), steps.get(name, len(modules)), name

    tests = [name for name in modules if Path(name).name.startswith("test_")]
    return sorted((n for n in tests if n in steps or n.startswith(mirrored)), key=rank_test_file)


@cache
def _read_imports(checkout: Path) -> tuple[list[str], dict[str, set[str]]]:
    """Return the paths of all Python files, and the files that import each.
    The syntax trees take a gigabyte in ten readings.
    """
    modules = changed.read_modules(checkout)
    return list(modules), changed.find_importers(modules)


def _take_number(waiting: "queue.SimpleQueue[int]") -> int | None:
    """Return the next number, or None when no lane has work left."""
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _copy_tracked_files(code: Path, folder: Path) -> Path:
    """Copy the files that git tracks."""
    copy = folder / "code"
    subprocess.run(["git", "clone", "--quiet", code, copy], check=True)
    return copy


def _run_tests(copy: Path, marks: str, options: list[str], limit_s: float) -> list[str]:
    """Return the tests that failed.
    It is "time" if the run did not end, and "collection" if no test could start.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy}:{copy / 'client'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "--no-header",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-m", marks, *options]
    process = subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return ["time"]
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", output, re.MULTILINE)
    if not failed and process.returncode not in (0, 5):
        return ["collection"]
    return failed


def main() -> None:
    """Plant faults, or run tests with them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    plant = commands.add_parser("plant", help="draw faults")
    plant.add_argument("faults", type=Path, help="the JSON file to write")
    plant.add_argument("--seed", type=int, default=30)
    plant.add_argument("--each", type=int, default=15, help="faults of each package")
    run = commands.add_parser("run", help="run tests with each fault")
    run.add_argument("faults", type=Path, help="the file that `plant` wrote")
    run.add_argument("results", type=Path, help="the JSON file to write or to continue")
    run.add_argument(
        "--code", type=Path, default=changed.ROOT, help="a checkout (default: this one)"
    )
    run.add_argument("--first", type=Path, help="results of another checkout")
    run.add_argument("--lanes", type=int, default=2, help="faults that are tried at the same time")
    given = parser.parse_args()
    if given.command == "plant":
        drawn = draw_faults(changed.ROOT, given.seed, given.each)
        given.faults.write_text(json.dumps([asdict(fault) for fault in drawn], indent=1))
        return
    faults = [Fault(**fields) for fields in json.loads(given.faults.read_text())]
    first = json.loads(given.first.read_text()) if given.first else None
    measurement = Measurement(given.code.resolve(), faults, given.results, first)
    measurement.run_nearest(given.lanes)
    measurement.run_all()
    print(measurement.summarize())


if __name__ == "__main__":
    main()
