"""The memory that jobs take beside the estimate by which they are admitted.

`PYTHONPATH=. python -m bench.methods.job_memory [--methods er,dlcft] [--networks resnet18,mlp]`
learns two tasks of random images with each method and network, in processes that a worker's zygote
forks, and prints the most anonymous memory that each took beyond what it had at its fork, the
estimate, and their ratio.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from bench.job_run import complete_job_spec
from core.admission.admission import JobTaskAndImageCounts, estimate_job_memory
from core.admission.network_size import find_network_size
from core.contract.catalogue import RecipeCatalogue
from core.contract.jobs.job_event import DoneEvent, JobEvent
from core.contract.responses.architecture import ImageOut
from core.recipe.architecture import complete_architecture
from core.recipe.catalogue import load_recipe_catalogue
from core.recipe.resolve import resolve_recipe
from core.settings import Settings
from worker.attempts.child import ForkServer
from worker.attempts.memory import read_anonymous_memory_bytes

NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "mlp": ({"name": "mlp", "hidden": [4096, 4096]}, 32),
    "resnet18": ({"name": "resnet18"}, 32),
    "small-cnn": ({"name": "small-cnn"}, 224),
    "vit": ({"name": "vit"}, 64),
}
METHODS = ("finetune", "der++", "ewc-online", "si", "gem", "dlcft", "analytic", "slca")
TRAIN, HELD_OUT, BATCH = 128, 300, 32
Json = dict[str, Any]


def measure_and_estimate_memory(
    catalogue: RecipeCatalogue, zygote: ForkServer, folder: Path, network: str, method: str
) -> tuple[int, int]:
    """Measure the peak memory of a learning job, and return it with the service's estimate."""
    partial_architecture, size = NETWORKS[network]
    image: ImageOut = {"size": size, "channels": 3}
    scenario = "task" if "task" in catalogue["methods"][method]["scenarios"] else "class"
    asked_for = complete_architecture(catalogue, scenario, partial_architecture, image)
    patch = {"method": method, "epochs": 1, "batch_size": BATCH}
    recipe = resolve_recipe(catalogue, scenario, patch, architecture=asked_for).recipe
    start = {
        "version": 0,
        "manifest": {"init": {"kind": "random", "seed": 1}, "classes": [], "heads": []},
    }
    common = {"architecture": asked_for, "image": image, "scenario": scenario, "recipe": recipe}
    tasks = [_write_random_task(folder, number, size) for number in (1, 2)]
    parent: Json = {**start, "parts": []}
    peak = 0
    for number, task in enumerate(tasks, 1):
        out = folder / f"out-{number}"
        out.mkdir()
        spec = {
            **common,
            "normalise": None,
            "classes": None,
            "task": task,
            "history": tasks[: number - 1],
        }
        spec |= {
            "parent": parent,
            "base": {**start, "parts": []},
            "snapshot": None,
            "out": str(out),
        }
        path = folder / f"spec-{number}.json"
        path.write_text(
            json.dumps(complete_job_spec({**spec, "threads": 2, "device": "cpu"}).to_json())
        )
        peak, result = _measure_job_peak_memory(zygote, path)
        parent = _describe_result_as_parent_version(number, Path(result))
    entry, network_size = catalogue["methods"][method], find_network_size(asked_for, image)
    assert network_size is not None
    return peak, estimate_job_memory(
        entry, network_size, image, recipe, JobTaskAndImageCounts(2, 2 * TRAIN)
    ).total_bytes


def _write_random_task(folder: Path, number: int, size: int) -> Json:
    task: Json = {"number": number, "classes": [f"a{number}", f"b{number}"]}
    for part, count in (("train", TRAIN), ("held_out", HELD_OUT)):
        path = folder / f"{part}-{number}.safetensors"
        images = torch.randint(0, 255, (count, size, size, 3), dtype=torch.uint8)
        save_file({"images": images, "labels": torch.arange(count) % 2}, path)
        task[part] = str(path)
    return task


def _measure_job_peak_memory(zygote: ForkServer, spec: Path) -> tuple[int, str]:
    child = zygote.fork_child(spec)
    start, peak = read_anonymous_memory_bytes(child.pid) or 0, 0
    last: JobEvent | None = None
    while not child.ended:
        for event in child.read_child_events(0.01):
            last = event
        peak = max(peak, read_anonymous_memory_bytes(child.pid) or 0)
    child.close_and_wait()
    if not isinstance(last, DoneEvent):
        raise RuntimeError(f"the job ended with {last}")
    return peak - start, str(last.path)


def _describe_result_as_parent_version(number: int, folder: Path) -> Json:
    result = json.loads((folder / "result.json").read_text())
    manifest = {key: result[key] for key in ("classes", "heads", "network", "method", "normalise")}
    parts = [
        {"name": p["name"], "type": p["type"], "path": str(folder / p["file"])}
        for p in result["parts"]
    ]
    return {"version": number, "manifest": {"version": number, **manifest}, "parts": parts}


def main() -> None:
    """Compare measured and estimated memory of learning jobs, for each method and network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--networks", default="mlp,resnet18")
    options = parser.parse_args()
    zygote = ForkServer()
    try:
        with tempfile.TemporaryDirectory() as home:
            catalogue = load_recipe_catalogue(Settings(data_dir=Path(home)))
            print(
                "| network | method | peak, MB | estimate, MB | ratio |\n| --- | --- | --- | --- | "
                "--- |"
            )
            for network in options.networks.split(","):
                for method in options.methods.split(","):
                    with tempfile.TemporaryDirectory() as folder:
                        peak, estimate = measure_and_estimate_memory(
                            catalogue, zygote, Path(folder), network, method
                        )
                    row = (network, method, f"{peak / 1e6:.0f}", f"{estimate / 1e6:.0f}")
                    print(f"| {' | '.join(row)} | {estimate / peak:.1f} |", flush=True)
    finally:
        zygote.end_fork_server()


if __name__ == "__main__":
    main()
