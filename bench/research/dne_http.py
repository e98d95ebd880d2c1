"""DNE through HTTP: old versions keep answering the same bytes, also after a job was killed twice.

    python -m bench.research.dne_http [--data DIR] [--epochs 40] [--images 100] [--classes 5]
        [--threads 0]

The streams, in the class scenario with an expert for each task: scikit-learn's digits, two new ones
in each of five tasks, which the service enlarges to 32 pixels; and with `--data`, the first classes
of three archives of CIFAR-100. Two models learn each stream with the same recipe. Nothing disturbs
the one; of the other the process that trains task 3 is killed with SIGKILL in either stage, first
while it trains the expert, then while it tunes the classifier.

After every task each version so far predicts the same held-out images, and once more when the
service was stopped and started again. Checked are, byte by byte: that no version's answers ever
change; that both models have equal parts, answers and accuracies; that every later version has the
experts of the earlier ones, and of its own only an expert, the classifier and the exemplars. A
check that fails ends the program with status 1.

DIR holds `cifar100/classes_00-09.zip` and so on (`train/<class>/` and `test/<class>/`). Some
minutes on two cores.
"""

import argparse
import io
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import psutil

from bench.research.methods_http import render_accuracy_matrices
from perennial import JobHandle, Perennial, types
from tools import digits, service

Json = dict[str, Any]
Files = dict[str, bytes]
"""Path in an archive, `train/<class>/<image>` or `test/<class>/<image>` → PNG."""
ARCHITECTURE = {"name": "dne", "layers": 2, "head_dim": 8, "heads": 3}
OPTIMIZER = {"name": "adamw", "lr": 0.003, "weight_decay": 1e-6}
EXEMPLARS = 200
KILLED = 3
"""The task whose process is killed."""
STAGES = ("expert", "classifier")
ARCHIVES = 3
"""Of CIFAR-100, one for each task."""
ASKED = 20
"""Held-out images of each task that every version predicts."""
SETTINGS = {"PERENNIAL_LEASE_S": "6", "PERENNIAL_CHORES_S": "0.5", "PERENNIAL_SNAPSHOT_S": "1.5"}


@dataclass
class StreamWithRecordedPredictions:
    """A stream of tasks learned over HTTP, with earlier predictions to compare later ones with."""

    name: str
    channels: int
    tasks: list[Files]
    answers: dict[tuple[str, int], bytes] = field(default_factory=dict)
    asked: int = 0

    def model_names(self) -> tuple[str, str]:
        """Names of two models: one that learns without interruption, one whose job is killed."""
        return f"{self.name}-undisturbed", f"{self.name}-killed"

    def build_probe_images(self) -> list[tuple[str, tuple[str, bytes, str]]]:
        """Build form files of held-out images of all tasks, as probes for predictions."""
        held_out = [
            [(p, png) for p, png in files.items() if p.startswith("test/")] for files in self.tasks
        ]
        chosen = [pair for task in held_out for pair in task[:: max(1, len(task) // ASKED)][:ASKED]]
        return [("image", (path, png, "image/png")) for path, png in chosen]

    def exit_unless_predictions_unchanged(
        self, http: httpx2.Client, model: str, newest: int
    ) -> None:
        """Predict the probe images with every version, and compare with earlier predictions."""
        for version in range(1, newest + 1):
            body = (
                http.post(
                    f"/v1/models/{model}/versions/{version}/predict",
                    files=self.build_probe_images(),
                )
                .raise_for_status()
                .content
            )
            self.asked += 1
            exit_unless_true(
                self.answers.setdefault((model, version), body) == body,
                f"version {version} of {model} does not answer as before, when version {newest} is "
                "the newest",
            )


def main() -> None:
    """Test DNE over HTTP with killed jobs; print comparisons, bytes and accuracies."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="without it, only the digits")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--images", type=int, default=100, help="of each class of CIFAR-100")
    parser.add_argument(
        "--classes", type=int, default=5, help="of each task of CIFAR-100, up to 10"
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="per job (default: the service's own choice)"
    )
    options = parser.parse_args()
    streams = [StreamWithRecordedPredictions("digits", 1, list(iterate_digit_tasks()))]
    if options.data:
        tasks = list(
            iterate_cifar_tasks(options.data / "cifar100", options.classes, options.images)
        )
        streams.append(StreamWithRecordedPredictions("cifar100", 3, tasks))
    environment = {
        **SETTINGS,
        **({"PERENNIAL_THREADS": str(options.threads)} if options.threads else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        with service.run_temporary_service(Path(folder), environment) as running:
            for stream in streams:
                learn_with_and_without_kills_and_compare(running, stream, options.epochs)
        with service.run_temporary_service(Path(folder), environment) as running:
            http = open_http_client(running)
            for stream in streams:
                for model in stream.model_names():
                    stream.exit_unless_predictions_unchanged(http, model, len(stream.tasks))
                print(
                    f"{stream.name}, started again: {stream.asked} times {len(stream.build_probe_images())} "
                    "images predicted by "
                    f"{len(stream.answers)} versions, each version's answers always the same bytes"
                )


def open_http_client(running: service.RunningService) -> httpx2.Client:
    """Open an HTTP client to the service, whose raw responses can be compared."""
    return httpx2.Client(
        base_url=running.url, headers={"Authorization": f"Bearer {running.key}"}, timeout=60
    )


def exit_unless_true(holds: bool, otherwise: str) -> None:
    """Exit with status 1 and a message unless a condition is true."""
    if not holds:
        raise SystemExit(f"FAILED: {otherwise}")


def iterate_digit_tasks() -> Iterator[Files]:
    """Yield the demo's five digit archives, with every fifth image held out."""
    for _, archive in digits.build_digit_archives():
        with zipfile.ZipFile(io.BytesIO(archive)) as source:
            yield {
                f"{'train' if n % 5 else 'test'}/{path}": source.read(path)
                for n, path in enumerate(source.namelist())
            }


def iterate_cifar_tasks(folder: Path, classes: int, images: int) -> Iterator[Files]:
    """Yield tasks with the first classes of each CIFAR archive, some images held out."""
    for first in range(0, 10 * ARCHIVES, 10):
        paths: dict[str, dict[str, list[str]]] = {
            "train": defaultdict(list),
            "test": defaultdict(list),
        }
        with zipfile.ZipFile(folder / f"classes_{first:02}-{first + 9:02}.zip") as source:
            for path in source.namelist():
                part, name, _ = path.split("/")
                paths[part][name].append(path)
            yield {
                path: source.read(path)
                for part, max_images in (("train", images), ("test", max(1, images // 4)))
                for name in sorted(paths[part])[:classes]
                for path in paths[part][name][:max_images]
            }


def pack_files_as_zip(files: Files) -> bytes:
    """Pack files as a zip with the same bytes at every call."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, png in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2000, 1, 1, 0, 0, 0)), png)
    return out.getvalue()


def learn_with_and_without_kills_and_compare(
    running: service.RunningService, stream: StreamWithRecordedPredictions, epochs: int
) -> None:
    """Learn a stream with and without killed jobs, and check that both models are equal."""
    client = Perennial(running.key, base_url=running.url)
    counts = [
        sum(p.startswith(part) for f in stream.tasks for p in f) for part in ("train/", "test/")
    ]
    print(
        f"{stream.name}: {len(stream.tasks)} tasks, {counts[0]:,} images and {counts[1]:,} held out"
    )
    undisturbed, killed = stream.model_names()
    for model, stages in ((undisturbed, ()), (killed, STAGES)):
        started_at = time.monotonic()
        learn_stream_with_job_kills(running, stream, model, epochs, stages)
        print(f"  {model}: learned in {time.monotonic() - started_at:.0f} s", flush=True)
    versions, killed_versions = (
        [client.versions.retrieve(m, one.number) for one in list(client.versions.list(m))[1:]]
        for m in (undisturbed, killed)
    )
    exit_unless_models_equal(stream, versions, killed_versions)
    exit_unless_experts_unchanged(versions)
    metrics, other = (client.metrics.retrieve(m) for m in (undisturbed, killed))
    exit_unless_true(
        metrics.accuracy_matrix == other.accuracy_matrix,
        f"{killed} has accuracies of its own: {other}",
    )
    print(
        "",
        render_version_sizes(versions),
        "",
        render_accuracy_matrices([(client.models.retrieve(killed), other)]),
        "",
        sep="\n",
    )
    print(f"ACC {other.summary.acc:.3f}, forgetting {other.summary.forgetting:.3f}\n", flush=True)


def learn_stream_with_job_kills(
    running: service.RunningService,
    stream: StreamWithRecordedPredictions,
    model: str,
    epochs: int,
    stages: tuple[str, ...],
) -> None:
    """Learn a stream task by task, killing the job's process in some stages of task 3."""
    client, http = Perennial(running.key, base_url=running.url), open_http_client(running)
    client.models.create(
        model,
        architecture=ARCHITECTURE,
        image={"size": 32, "channels": stream.channels},
        recipe={
            "method": {"name": "dne", "exemplars": EXEMPLARS, "tuning_epochs": epochs},
            "epochs": epochs,
            "optimizer": OPTIMIZER,
        },
        gate={"checks": "off"},
    )
    for number, files in enumerate(stream.tasks, start=1):
        job = client.submit(model, pack_files_as_zip(files), name=f"task-{number}")
        for stage in stages if number == KILLED else ():
            kill_job_after_snapshot(running, job, stage)
        end = job.wait(1800)
        if stages and number == KILLED:
            print_resumed_snapshots(job, end, stages)
        stream.exit_unless_predictions_unchanged(http, model, number)


def kill_job_after_snapshot(running: service.RunningService, job: JobHandle, stage: str) -> None:
    """Kill the process of a job some steps after its snapshot in a stage."""
    last_snapshot: types.SnapshotData | None = None
    for event in job.events(only=("progress", "snapshot")):
        if isinstance(event.data, types.SnapshotData):
            last_snapshot = event.data
        elif (
            last_snapshot
            and isinstance(event.data, types.ProgressData)
            and STAGES[last_snapshot.stage or 0] == stage
        ):
            if (event.data.step or 0) <= (last_snapshot.step or 0):
                continue
            _require_job_process(running).kill()
            return
    raise SystemExit(
        f"FAILED: {job.id} ended before it could be killed as it trained the {stage}: give it more "
        f"--epochs"
    )


def print_resumed_snapshots(handle: JobHandle, job: types.Job, stages: tuple[str, ...]) -> None:
    """Print where the job was killed, and from which snapshot it resumed."""
    exit_unless_true(
        job.attempt == 1 + len(stages), f"{len(stages)} kills, but attempt {job.attempt}"
    )
    events = list(handle.events())
    for attempt, stage in enumerate(stages, start=2):
        attempt_start = next(
            n
            for n, e in enumerate(events)
            if isinstance(e.data, types.StateData) and e.data.attempt == attempt
        )
        snapshot = [
            e.data for e in events[:attempt_start] if isinstance(e.data, types.SnapshotData)
        ][-1]
        before, after = (
            [e.data for e in part if isinstance(e.data, types.ProgressData) and e.data.step]
            for part in (events[:attempt_start], events[attempt_start:])
        )
        progress_text = f"after step {before[-1].step} of {before[-1].total_steps}"
        exit_unless_true(
            (after[0].step or 0) > (snapshot.step or 0) > 0,
            f"attempt {attempt} began at step {after[0].step}",
        )
        print(
            f"  task {job.task}: process killed in the stage of the {stage}, {progress_text}; attempt "
            f"{attempt} "
            "went on from "
            f"the snapshot at step {snapshot.step}"
        )
    print(f"  task {job.task}: {job.state} at attempt {job.attempt}")


def exit_unless_models_equal(
    stream: StreamWithRecordedPredictions,
    versions: list[types.Version],
    killed_versions: list[types.Version],
) -> None:
    """Exit with an error unless both models have equal parts and predictions."""
    for one, other in zip(versions, killed_versions, strict=True):
        ours, theirs = (read_part_digests(v) for v in (one, other))
        differing = sorted(
            name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
        )
        exit_unless_true(
            not differing,
            f"version {one.number} differs between the models in {', '.join(differing)}",
        )
        first, second = (stream.answers[model, one.number] for model in stream.model_names())
        exit_unless_true(
            first == second,
            f"version {one.number} answers otherwise where task {KILLED} was killed",
        )
    parts = sum(len(v.parts) for v in versions)
    print(
        f"  killed = undisturbed: sha256 of all {parts} parts of {len(versions)} versions, and all "
        f"answers"
    )


def exit_unless_experts_unchanged(versions: list[types.Version]) -> None:
    """Exit with an error unless every version contains the earlier experts unchanged."""
    for before, after in pairwise(versions):
        number, digests = after.number, read_part_digests(after)
        for name, digest in read_part_digests(before).items():
            if name not in ("head", "exemplars"):
                exit_unless_true(
                    digests.get(name) == digest, f"{name} has changed in version {number}"
                )
        new = {part.name: part.bytes for part in after.parts if part.shared_with is None}
        expected_parts = {f"expert.{number}", "head", "exemplars", f"exemplars.images.{number}"}
        exit_unless_true(
            new.keys() == expected_parts,
            f"version {number} stores {sorted(new)} and not {sorted(expected_parts)}",
        )
        exit_unless_true(
            sum(new.values()) == after.bytes_new, f"version {number} adds {after.bytes_new} bytes"
        )
    print(
        "  experts: the same sha256 in all later versions; new are an expert, head and the task's "
        "exemplars"
    )


def read_part_digests(version: types.Version) -> dict[str, str]:
    """Return the digest of each part of a version, by name."""
    return {part.name: part.sha256 for part in version.parts}


def render_version_sizes(versions: list[types.Version]) -> str:
    """Render a table of the bytes that each version adds and shares with earlier ones."""
    lines = [
        "| version | its expert | head | exemplars | new in all | shared |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for version in versions:
        new = {p.name: p.bytes for p in version.parts if p.shared_with is None}
        all_new = version.bytes_new
        head_and_exemplar_bytes = [
            new["head"],
            sum(size for name, size in new.items() if name.startswith("exemplars")),
        ]
        cells = [
            sum(new.values()) - sum(head_and_exemplar_bytes),
            *head_and_exemplar_bytes,
            all_new,
            version.bytes - all_new,
        ]
        lines.append(f"| {version.number} | {' | '.join(f'{b:,}' for b in cells)} |")
    return "\n".join(lines)


def _require_job_process(running: service.RunningService) -> psutil.Process:
    """Return the process that the fork server forked for the job."""
    for process in psutil.Process(running.process.pid).children(recursive=True):
        parent = process.parent()
        if (
            "worker.attempts.zygote" in process.cmdline()
            and parent is not None
            and parent.cmdline() == process.cmdline()
        ):
            return process
    raise SystemExit("FAILED: no job runs")


if __name__ == "__main__":
    main()
