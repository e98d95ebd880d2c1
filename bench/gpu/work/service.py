"""The whole service on this device: batches over HTTP, jobs in its worker, measured versions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from bench.gpu.step_run import GpuCheckStepRun
from core.packaged.sample_pictures import BATCHES, locate_packaged_sample_archive
from perennial import Perennial
from perennial.types import Job
from tools.service import run_temporary_service

JOB_S = 60.0
"""After so long without its end a job counts as hung."""
LEARNED = 3
"""Of the batches of sample pictures."""
MODELS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "der++ on resnet18": {
        "base": "random",
        "architecture": "resnet18",
        "recipe": {"method": "der++", "epochs": 15},
        "gate": {"checks": "off"},
    },
}


def record_service_updates(run: GpuCheckStepRun) -> None:
    """Record time, device and accuracy of updates through a running service on the GPU."""
    device = "cpu" if run.device == "sim" else run.device
    start = time.monotonic()
    with (
        run_temporary_service(run.folder / "data", {"PERENNIAL_DEVICE": device}) as running,
        Perennial(running.key, base_url=running.url) as client,
    ):
        run.record_measurement("seconds until it is ready", round(time.monotonic() - start, 1))
        figures: dict[str, Any] = {}
        for name, settings in list(MODELS.items())[: 1 if run.tiny else None]:
            for batch, row in _learn_sample_batches(run, client, name, settings):
                figures[f"{name}, {batch}"] = row
                run.record_measurement("updates", figures)


def _learn_sample_batches(
    run: GpuCheckStepRun, client: Perennial, title: str, settings: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Submit sample batches one after the other; yield each with its figures once it is learned."""
    name = title.replace(" ", "-").replace("+", "p")
    client.models.create(name, **settings)
    for batch in list(BATCHES)[: 1 if run.tiny else LEARNED]:
        job = client.submit(name, locate_packaged_sample_archive(batch), name=batch).wait(
            JOB_S, check=False
        )
        row = {"state": job.state, **_collect_update_measurements(client, name, job)}
        yield batch, row
        if job.state != "succeeded":
            run.record_problem(f"{title}, {batch}: {job.error.detail if job.error else job.state}")
            break
        if not str(row["device"]).startswith("cpu" if run.device != "cuda" else "cuda"):
            run.record_problem(f"{title}, {batch}: learned on {row['device']}")


def _collect_update_measurements(client: Perennial, model: str, job: Job) -> dict[str, Any]:
    """Describe an update: seconds, device, number format and mean accuracy of its version."""
    if job.version is None or job.started_at is None or job.finished_at is None:
        return {"device": None}
    started_at, ended = (datetime.fromisoformat(at) for at in (job.started_at, job.finished_at))
    environment = client.versions.retrieve(model, job.version).manifest.environment
    assert environment is not None
    return {
        "seconds": round((ended - started_at).total_seconds(), 2),
        "device": environment.device,
        "precision": environment.precision,
        "mean accuracy": client.metrics.retrieve(model).summary.acc,
    }
