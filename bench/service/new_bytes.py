"""Bytes that a version adds to the store, over the bytes of what changed: the network's tensors, a
memory's images.

    python -m bench.service.new_bytes

Goal: ≤ 1.05, depth 1 included. "Changed" compares every tensor of a version's parts with the
parent's, byte for byte, and counts the images that the parent did not remember of a task; "new" are
blobs that no earlier version of the model has.
"""

import argparse
import io
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load

from perennial import Perennial
from tools import digits, service

CASES: dict[str, dict[str, Any]] = {
    "finetune, depth 5": {"method": "finetune"},
    "finetune, depth 2": {"method": "finetune", "depth": 2},
    "finetune, depth 1": {"method": "finetune", "depth": 1},
    "ewc-online, depth 5": {"method": "ewc-online"},
    "ewc-online, depth 1": {"method": "ewc-online", "depth": 1},
}


MEMORIES: dict[str, dict[str, Any]] = {
    "der++, 500 images": {"name": "der++", "buffer": 500},
    "icarl, 2,000 images": {"name": "icarl", "exemplars": 2000},
}
OFF: dict[str, Any] = {"checks": "off"}
"""A gate that holds no version that forgot."""
SIDE = 64
"""Pixels of the images that are remembered."""
PER_CLASS = 1000
"""Images of each of a task's two classes: as many as the first task's exemplars."""
TASKS = 5

Memory = set[tuple[int, bytes]]
"""Task and pixels of the images that a version remembers."""


def main() -> None:
    """Print how many bytes each version adds to the store, by recipe."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        for number, (title, recipe) in enumerate(CASES.items()):
            print(
                _learn_and_describe_added_bytes(client, f"bytes-{number}", title, recipe),
                flush=True,
            )
        for number, (title, method) in enumerate(MEMORIES.items()):
            print(
                _describe_replay_images_stored_again(
                    client, running.data_dir / "store", f"memory-{number}", title, method
                ),
                flush=True,
            )


def _learn_and_describe_added_bytes(
    client: Perennial, model: str, title: str, recipe: dict[str, Any]
) -> str:
    """Describe the mean bytes that versions 2 to 4 of a model add."""
    client.models.create(model, recipe={**recipe, "epochs": 1}, architecture="small-cnn", gate=OFF)
    for _, archive in digits.build_digit_archives()[:4]:
        client.submit(model, archive).wait()
    tensors = [_read_version_tensors(client, model, version) for version in range(1, 5)]
    changed = sum(_count_bytes_of_changed_tensors(old, new) for old, new in pairwise(tensors))
    new = sum(client.versions.retrieve(model, v).bytes_new for v in range(2, 5))
    total_bytes = client.versions.retrieve(model, 4).bytes
    return (
        f"{title:22} new {new / 3:>11,.0f} B a version of {total_bytes:,} B"
        f"   new / changed {new / changed:.3f} (goal ≤ 1.05)"
    )


def _describe_replay_images_stored_again(
    client: Perennial, store: Path, model: str, title: str, method: dict[str, Any]
) -> str:
    """Describe how many replay images each version stores again."""
    image = {"size": SIDE, "channels": 3}
    recipe = {"method": method, "epochs": 1, "batch_size": 64, "optimizer": {"lr": 0.001}}
    client.models.create(
        model, image=image, architecture={"name": "mlp", "hidden": [16]}, recipe=recipe, gate=OFF
    )
    lines = [
        f"| {title}: version | remembered | of them new | their bytes | bytes of new images | "
        "ratio | other new bytes |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    parent: Memory = set()
    came, added = 0, 0
    for number in range(1, TASKS + 1):
        client.submit(model, _build_noise_batch(number)).wait()
        version = client.versions.retrieve(model, number)
        parts = {part.name: part for part in version.parts if part.type in ("buffer", "exemplars")}
        tensors = {name: load(_read_blob(store, part.sha256)) for name, part in parts.items()}
        new = [name for name, part in parts.items() if part.shared_with is None]
        images = sum(tensors[name]["images"].nbytes for name in new if "images" in tensors[name])
        now = _extract_remembered_images(tensors)
        changed = len(now - parent) * SIDE * SIDE * 3
        rest = sum(parts[name].bytes for name in new) - images
        cells = [len(now), len(now - parent), changed, images, f"{images / changed:.3f}", rest]
        lines.append(
            f"| {number} | {' | '.join(f'{c:,}' if isinstance(c, int) else str(c) for c in cells)} |"
        )
        parent, came, added = now, came + changed, added + images
    return "\n".join(
        [*lines, f"all: {added:,} B for {came:,} B of new images: {added / came:.3f} (goal ≤ 1.05)"]
    )


def _build_noise_batch(task: int) -> bytes:
    """Build an npz batch with two classes of random images of different brightness."""
    draw = np.random.default_rng(task)
    labels = np.arange(2 * PER_CLASS) % 2
    pixels = (
        draw.integers(0, 100, (len(labels), SIDE, SIDE, 3), dtype=np.uint8)
        + 100 * labels[:, None, None, None]
    )
    out = io.BytesIO()
    np.savez(out, images=pixels.astype(np.uint8), labels=labels + 2 * task)
    return out.getvalue()


def _extract_remembered_images(tensors: dict[str, dict[str, np.ndarray]]) -> Memory:
    """Extract the images of a replay memory from a version's parts."""
    (name,) = (name for name in tensors if "tasks" in tensors[name])
    memory_tensors = tensors[name]
    tasks = memory_tensors["tasks"].tolist()
    if "images" in memory_tensors:
        return {
            (task, image.tobytes())
            for task, image in zip(tasks, memory_tensors["images"], strict=True)
        }
    packs = {task: tensors[f"{name}.images.{task}"]["images"] for task in set(tasks)}
    return {
        (task, packs[task][row].tobytes())
        for task, row in zip(tasks, memory_tensors["rows"].tolist(), strict=True)
    }


def _read_blob(store: Path, sha256: str) -> bytes:
    return (store / "blobs" / sha256[:2] / sha256).read_bytes()


def _read_version_tensors(client: Perennial, model: str, version: int) -> dict[str, bytes]:
    bytes_by_tensor = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in client.versions.retrieve(model, version).parts:
            file = Path(folder) / "part"
            client.versions.download_file(model, version, part.name, file)
            for name, array in load(file.read_bytes()).items():
                bytes_by_tensor[f"{part.name}/{name}"] = array.tobytes()
    return bytes_by_tensor


def _count_bytes_of_changed_tensors(old: dict[str, bytes], new: dict[str, bytes]) -> int:
    return sum(len(data) for name, data in new.items() if old.get(name) != data)


if __name__ == "__main__":
    main()
