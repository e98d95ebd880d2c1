"""Every hostile input through real HTTP against a real service:
`python tests/security/corpus.py [--full]`.

Starts API and worker on a free port with lowered limits, sends all cases of the corpus, puts all
pictures into one batch as well, and watches memory. At the end the same processes must still learn
a batch and answer a prediction, no temporary file may be left, and nothing may have been answered
by a 5xx. Prints a table of every case, and totals.
"""

import argparse
import json
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx2

from core.bases.expected_base import load_or_compute_base_tensor_shapes
from core.ingest.limits import ArchiveLimits
from core.settings import Settings
from perennial import ArchiveRejected
from tests.core.ingest.hostile_corpus import Entry, build_raw_zip, build_zip, draw_png
from tests.core.ingest.hostile_corpus import draw_pictures as honest_pictures
from tests.live_files import list_live_files
from tests.rest import Rest
from tests.security import archives, arrays, bodies, pictures, resumable, weights
from tests.security.case import BASES, PREDICT, TASKS, Case
from tests.security.memory import Memory, find_pids
from tools import service

MB = 1 << 20
BODY_BYTES = 64 * MB
SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_MAX_BODY_BYTES": str(BODY_BYTES),
    "PERENNIAL_UPLOAD_IDLE_S": "2",
    # The corpus asks what is answered, not how soon: its costliest picture takes seconds.
    "PERENNIAL_PREDICT_IMAGE_S": "60",
}
BOUNDS_MB = {
    # The API keeps at most 256 MiB of predictions in line and two directories of an archive.
    "api": 640,
    "worker": 640,
    "decoder": (ArchiveLimits().decoder_memory_bytes + 192 * MB) // MB,
    "helper": 1024,
    # A decoder's limit, a GiB for arrays as objects, and what it has mapped at its start.
    "image decoder": (ArchiveLimits().decoder_memory_bytes + 1024 * MB + 192 * MB) // MB,
}
"""Peak resident memory that each process may have, in MiB."""
_RAW_S = 60.0


@dataclass
class Outcome:
    """One case and what became of it."""

    name: str
    answer: str
    ms: float
    right: bool


@dataclass
class Report:
    """All outcomes, peaks of memory in MiB by process, and what else went wrong."""

    outcomes: list[Outcome] = field(default_factory=list)
    peaks: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be."""
        lines = [f"{o.name}: answered {o.answer}" for o in self.outcomes if not o.right]
        lines += [
            f"{name} took {peak:.0f} MiB, more than {BOUNDS_MB[name]}"
            for name, peak in self.peaks.items()
            if peak > BOUNDS_MB[name]
        ]
        return lines + self.failures


def list_cases() -> list[Case]:
    """Return the whole corpus."""
    groups = (archives, arrays, weights, pictures, bodies, resumable)
    return [case for group in groups for case in group.list_cases()]


def list_representative_cases() -> list[Case]:
    """Return all bodies and uploads, and a case for each first right answer of other groups.
    The readers of those groups are tested one by one.
    """
    of_kind: dict[tuple[object, ...], Case] = {}
    for case in list_cases():
        is_alone = case.group in ("bodies", "uploads")  # HTTP itself is what they attack
        kind = (case.group, case.answers[0], case.row, case.headers.get("Content-Type"))
        of_kind.setdefault((*kind, case.name) if is_alone else kind, case)
    return list(of_kind.values())


def run_cases(data_dir: Path, chosen: list[Case], *, full: bool = False) -> Report:
    """Send the chosen cases to a service of their own. full: also 2 GB in one body."""
    settings = dict(SETTINGS)
    if full:
        settings["PERENNIAL_MAX_BODY_BYTES"] = str(4 << 30)
    with service.run_temporary_service(data_dir, settings) as running:
        return attack_service(running, chosen, full=full)


def attack_service(
    running: service.RunningService,
    chosen: list[Case],
    *,
    full: bool = False,
    every_job: bool = True,
) -> Report:
    """Send the chosen cases to a running service.

    The part of its log before them does not count.

    Args:
        full: also 2 GB in one body.
        every_job: also batches whose readers tests/core/ingest/test_ingest.py shows one by one.
    """
    report, said = Report(), running.log.stat().st_size
    memory = Memory(running.process.pid)
    memory.start()
    client = Rest(running.url, running.key)
    _learn_batch(client, "target", build_zip(honest_pictures(10)))
    _predict_picture(client, "target")
    before = find_pids(running.process.pid)
    stored = _list_unfinished_files(running.data_dir)
    begun = client.call(
        "POST", resumable.UPLOADS, headers={"Upload-Length": str(resumable.LENGTH)}
    ).json()["id"]
    with ThreadPoolExecutor() as pool:
        sent = [_insert_upload(begun, case) for case in chosen]
        sent = [case for case in sent if not (full and "larger than declared limit" in case.name)]
        # Raw exchanges are answered when a time is over, and meanwhile the others are sent.
        raw = [pool.submit(_send_case, running, client, case) for case in sent if case.raw]
        report.outcomes += [_send_case(running, client, case) for case in sent if not case.raw]
        report.outcomes += [future.result() for future in raw]
    _try_bases(client, running.data_dir, report)
    _try_batches(client, chosen, report, every_job=every_job)
    if (at := client.call("HEAD", f"{resumable.UPLOADS}/{begun}").headers["upload-offset"]) != "0":
        report.failures.append(f"{at} bytes of {begun} were taken")
    if full:
        _send_two_gigabytes(client, report)
    _check_service_afterwards(running, client, before, stored, said, report)
    report.peaks = memory.stop()
    return report


def _insert_upload(upload: str, case: Case) -> Case:
    """Return the case, with the id of an upload where it names one."""

    def build_body_with_upload() -> Any:
        made = case.body()
        pieces = [made] if isinstance(made, bytes) else made
        named = [piece.replace(b"{upload}", upload.encode()) for piece in pieces]
        return named[0] if isinstance(made, bytes) else named

    return replace(case, path=case.path.replace("{upload}", upload), body=build_body_with_upload)


def _send_case(running: service.RunningService, client: Rest, case: Case) -> Outcome:
    began = time.monotonic()
    body = case.body()
    made_ms = 1000 * (time.monotonic() - began)
    status, code = (
        _send_raw_pieces(running, case, body) if case.raw else _send_by_http(client, case, body)
    )  # type: ignore[arg-type]
    ms = 1000 * (time.monotonic() - began) - made_ms
    answer = "closed" if status is None else f"{status} {code}".strip()
    if status == 202 and "202" in case.answers:
        _end_newest_job(client)
    return Outcome(f"{case.group}: {case.name}", answer, ms, case.right(status, code))


def _send_by_http(client: Rest, case: Case, body: bytes) -> tuple[int | None, str]:
    headers: dict[str, Any] = {
        name: value.encode("latin-1") for name, value in case.headers.items()
    }
    content: bytes | None = body
    if case.path == PREDICT and case.group == "pictures":
        parts = (
            b"--xx",
            b'Content-Disposition: form-data; name="image"; filename="a.png"',
            b"",
            body,
            b"--xx--",
            b"",
        )
        content = b"\r\n".join(parts)
        headers["Content-Type"] = bodies.FORM["Content-Type"]
    if case.method in ("GET", "HEAD", "TRACE"):
        content = None
    try:
        answer = client.http.request(case.method, case.path, content=content, headers=headers)
    except httpx2.TransportError:
        return None, ""
    return answer.status_code, _read_problem_code(answer.content)


def _send_raw_pieces(
    running: service.RunningService, case: Case, pieces: list[bytes]
) -> tuple[int | None, str]:
    host, port = running.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=_RAW_S) as connection:
        try:
            for number, piece in enumerate(pieces):
                if number and case.pause_s:
                    time.sleep(case.pause_s)
                connection.sendall(piece.replace(b"{key}", running.key.encode()))
            if "then gone" in case.name:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was answered before all was sent
        answer = HTTPResponse(connection, method=case.method)
        try:
            answer.begin()
            return answer.status, _read_problem_code(answer.read(MB))
        except (OSError, HTTPException):
            return None, ""  # cut, or silence until the time was over


def _read_problem_code(body: bytes) -> str:
    try:
        return str(json.loads(body)["type"]).removeprefix("/problems/")
    except (ValueError, TypeError, KeyError):
        return ""


def _end_newest_job(client: Rest) -> None:
    """Cancel the newest job.
    A case that is odd but accepted must not stop the target's lineage.
    """
    job = client.items(TASKS)[-1]["job"]
    client.http.post(f"/v1/jobs/{job}/cancel")
    client.wait(job, 60)


def _try_bases(client: Rest, data_dir: Path, report: Report) -> None:
    """Check that a base that fits and is full of NaN or infinity is refused.
    A sound one is taken.
    """
    expected = load_or_compute_base_tensor_shapes(
        Settings(data_dir=data_dir),
        client.get("/v1/models/target")["architecture"],
        client.get("/v1/models/target")["image"],
    )
    for fill, wanted in ((float("nan"), 422), (float("inf"), 422), (0.5, 201)):
        began = time.monotonic()
        answer = client.http.post(BASES, content=weights.build_small_cnn(fill, expected))
        ms = 1000 * (time.monotonic() - began)
        text = f"{answer.status_code} {_read_problem_code(answer.content)}".strip()
        report.outcomes.append(
            Outcome(f"weights: full of {fill}", text, ms, answer.status_code == wanted)
        )


NOT_SHOWN_ALONE = ("pictures of 9 MB of nothing", "labels that are formulas")
"""Jobs of `_jobs` that no faster test shows."""


def _try_batches(client: Rest, chosen: list[Case], report: Report, *, every_job: bool) -> None:
    """Send batches whose attack shows only when they are decoded.
    Each ends as a rejected job, or as rows of a report.
    """
    data = draw_png(1)
    honest = [Entry(f"{c}/{i}.png".encode(), draw_png(i)) for c in ("cat", "dog") for i in range(4)]
    # What begins as a PNG is found to be none when it is decoded, and not at the first look.
    late = [
        Entry(f"cat/w{i}.png".encode(), data[:50] + b"x" * (9 << 20), method=0) for i in range(5)
    ]
    for name, body, state in (
        ("all pictures "
            "damaged", build_zip({f"{c}/{i}.png": data[:50] for c in "ab" for i in range(9)}), "rejected"),
        ("more than 5 % "
            "damaged", build_zip(honest_pictures(9) | {f"cat/b{i}.png": data[:50] for i in range(3)}),
         "rejected"),
        ("one class damaged", build_zip(honest_pictures(40) | {"bad/1.png": b"x"}), "rejected"),
        ("false checksums",
         build_raw_zip([*honest, *[Entry(f"cat/c{i}.png".encode(), data, crc=7) for i in range(5)]]), "rejected"),
        ("pictures of 9 MB of nothing", build_raw_zip([*honest, *late]), "rejected"),
        ("lie behind the trial's budget", _build_zip_with_late_lie(), "refused at once"),
        ("labels that are formulas",
         build_zip({f"{label}/{i}.png": draw_png(6 * number + i)
                     for number, label in enumerate(("=1+1", "@SUM(A1)", "+a", "-b")) for i in range(6)}),
         "succeeded"),
    ):  # fmt: skip
        if not every_job and name not in NOT_SHOWN_ALONE:
            continue
        began = time.monotonic()
        model = client.models.create(
            f"m{len(report.outcomes)}",
            recipe={"method": "finetune", "epochs": 1},
            architecture="small-cnn",
        )
        try:
            said = client.wait(client.submit(model.name, body)).state
        except ArchiveRejected:
            said = "refused at once"
        except RuntimeError as error:
            said = str(error)
        ms = 1000 * (time.monotonic() - began)
        report.outcomes.append(Outcome(f"job: {name}", f"job {said}", ms, said == state))
    poison = [case for case in chosen if case.group == "pictures"]
    if poison:
        _try_pictures(client, poison, report)


def _build_zip_with_late_lie() -> bytes:
    """Build a zip of deflated entries up to the trial's 32 MiB, with a false one behind them.
    That one unpacks to more than it says.
    """
    head = draw_png(1)[:50]
    noise = head + random.Random(1).randbytes(4 << 20)
    filler = [Entry(f"cat/f{i}.png".encode(), noise, method=8) for i in range(9)]
    lie = Entry(b"cat/lie.png", head + bytes(range(256)) * 40, method=8, size=5_000)
    return build_raw_zip([Entry(b"dog/0.png", draw_png(1)), *filler, lie])


def _try_pictures(client: Rest, poison: list[Case], report: Report) -> None:
    """Send all hostile pictures in one batch of honest ones.
    The bad ones become rows with their reason; the others are learned.
    """
    files = pictures.build_honest_pictures(11 * len(poison))
    names = {f"cat/poison-{i}.bin.png": case for i, case in enumerate(poison)}
    # An entry that starts like an archive refuses the batch as a whole: those are cases of their
    # own.
    sent = {name: case for name, case in names.items() if not case.body().startswith(b"PK")}  # type: ignore[union-attr]
    began = time.monotonic()
    client.models.create(
        "pictures", recipe={"method": "finetune", "epochs": 1}, architecture="small-cnn"
    )
    body = build_zip(files | {name: case.body() for name, case in sent.items()})  # type: ignore[misc]
    job = client.wait(client.submit("pictures", body), 300)
    ms = 1000 * (time.monotonic() - began)
    task = client.get("/v1/models/pictures/tasks/1")
    rows = {row["path"]: row["reason"] for row in (task["report"] or {}).get("rejected", [])}
    learned = job.state == "succeeded"
    report.outcomes.append(
        Outcome("job: all pictures in a batch", f"job {job.state}, {len(rows)} rows", ms, learned)
    )
    for name, case in sent.items():
        reason = rows.get(name, "")
        words = [] if case.row in ("", "*") else case.row.split("|")
        right = bool(reason) == bool(case.row) and (
            not words or any(word in reason for word in words)
        )
        report.outcomes.append(Outcome(f"row: {case.name}", reason or "learned", 0.0, right))


def _send_two_gigabytes(client: Rest, report: Report) -> None:
    began = time.monotonic()
    block = bytes(MB)

    def yield_two_gigabytes() -> Any:
        yield b"PK\x03\x04" + block[4:]
        for _ in range(2047):
            yield block

    answer = client.http.post(TASKS, content=yield_two_gigabytes(), timeout=300)
    ms = 1000 * (time.monotonic() - began)
    right = answer.status_code == 422
    report.outcomes.append(
        Outcome(
            "bodies: 2 GB in chunks",
            f"{answer.status_code} {_read_problem_code(answer.content)}",
            ms,
            right,
        )
    )


def _learn_batch(client: Rest, model: str, body: bytes) -> None:
    if client.http.get(f"/v1/models/{model}").status_code == 404:
        client.models.create(
            model, recipe={"method": "finetune", "epochs": 1}, architecture="small-cnn"
        )
    job = client.wait(client.submit(model, body))
    if job.state != "succeeded":
        raise RuntimeError(f"an honest batch ended as {job.state}: {job.error}")


def _predict_picture(client: Rest, model: str) -> dict[str, Any]:
    path = f"/v1/models/{model}/versions/latest/predict"
    answer = client.http.post(path, files={"image": ("a.png", draw_png(3), "image/png")})
    if answer.status_code != 200:
        raise RuntimeError(
            f"an honest picture was answered by {answer.status_code}: {answer.text[:300]}"
        )
    return answer.json()  # type: ignore[no-any-return]


def _list_unfinished_files(data_dir: Path) -> set[Path]:
    """Return the files of uploads, jobs and downloads under way."""
    folders = [data_dir / name for name in ("spool", "work")]
    return {path for folder in folders for path in list_live_files(folder)}


def _check_service_afterwards(
    running: service.RunningService,
    client: Rest,
    before: dict[str, int],
    stored: set[Path],
    said: int,
    report: Report,
) -> None:
    """Check that the service still works, as the same processes, and that nothing is left."""
    try:
        _learn_batch(client, "after", build_zip(honest_pictures(10)))
        _predict_picture(client, "after")
    except RuntimeError as error:
        report.failures.append(str(error))
    now = find_pids(running.process.pid)
    report.failures += [
        f"{name} is another process" for name, pid in before.items() if now.get(name) != pid
    ]
    end = time.monotonic() + 60  # the last job's folder goes after its state is told
    while (left := _list_unfinished_files(running.data_dir) - stored) and time.monotonic() < end:
        time.sleep(0.1)
    report.failures += [f"{path} is left" for path in sorted(left)]
    for line in running.log.read_bytes()[said:].decode(errors="replace").splitlines():
        if any(
            mark in line
            for mark in ("unexpected error", "predict helper gone", "Traceback", "restart")
        ):
            report.failures.append(f"the log says: {line[:200]} … {line[-700:]}")
    answers = Counter(outcome.answer.split(" ")[0] for outcome in report.outcomes)
    report.failures += [
        f"{count} answers {status}" for status, count in answers.items() if status.startswith("5")
    ]


def main() -> int:
    """Print the table; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="also 2 GB in one body (takes 2 GB of disk)"
    )
    parser.add_argument(
        "--group", action="append", help="archives, arrays, weights, pictures or bodies"
    )
    asked = parser.parse_args()
    began = time.monotonic()
    chosen = [case for case in list_cases() if asked.group is None or case.group in asked.group]
    with tempfile.TemporaryDirectory() as folder:
        report = run_cases(Path(folder) / "data", chosen, full=asked.full)
    for outcome in report.outcomes:
        mark = " " if outcome.right else "!"
        print(f"{mark} {outcome.name[:70]:70} {outcome.answer[:42]:42} {outcome.ms:8.0f} ms")
    answers = Counter(
        outcome.answer for outcome in report.outcomes if not outcome.name.startswith("row:")
    )
    print(f"\n{len(report.outcomes)} answers in {time.monotonic() - began:.0f} s:")
    print("  " + ", ".join(f"{count} × {answer}" for answer, count in answers.most_common()))
    peaks = [
        f"{name} {peak:.0f} (bound {BOUNDS_MB[name]})"
        for name, peak in sorted(report.peaks.items())
    ]
    print("  peak memory in MiB: " + ", ".join(peaks))
    print(f"  {len(report.wrong)} wrong")
    for line in report.wrong:
        print("WRONG", line)
    return int(bool(report.wrong))


if __name__ == "__main__":
    sys.exit(main())
