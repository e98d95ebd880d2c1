"""`make demo`: real labelled batches become versions of a model, over HTTP, with nothing installed.

Starts the embedded service on a free port, uploads scikit-learn's digits as five batches of two
classes, shows each being learned, prints the accuracy matrix, downloads the last version, verifies
its digest, and predicts with the downloaded file alone.
"""

import argparse
import io
import json
import os
import re
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

from tools import digits, service
from tools.client import Client

Json = dict[str, Any]
console = Console()


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", default="der++", help="continual-learning method (default: der++)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the recipe (default: 0)")
    options = parser.parse_args()
    method: Json = {"name": options.method}
    if options.method in ("er", "der++"):
        method["buffer"] = 200

    data_dir = Path(os.environ.get("PERENNIAL_DATA_DIR", "perennial-data")).absolute()
    console.print(f"Starting Perennial with its data in {data_dir} …")
    with service.running(data_dir) as running:
        client = Client(running.url, running.key)
        console.print(f"Ready at {running.url}  (API documentation: {running.url}/docs)\n")
        name = f"digits-{time.strftime('%Y%m%d-%H%M%S')}"
        recipe = {"method": method, "seed": options.seed}
        model = client.create_model(name, scenario="class", recipe=recipe)
        console.print(
            f"Model [b]{name}[/b]: {options.method}, five batches of two digits each, one after another."
        )
        learn(client, name)
        show(client.get(f"/v1/models/{name}/metrics"))
        with tempfile.TemporaryDirectory() as folder:
            check_download(client, name, Path(folder) / "model.zip")
        console.print(
            f"\nThe versions of [b]{model['name']}[/b] are kept. To go on with them:\n"
            f"  make serve                                    # http://127.0.0.1:8000/docs\n"
            f"  export KEY=$(cat {data_dir / 'admin-key'})\n"
            f'  curl -H "Authorization: Bearer $KEY" http://127.0.0.1:8000/v1/models/{name}/versions'
        )
    return 0


def learn(client: Client, model: str) -> None:
    """Submit the five archives at once and follow each job with a bar."""
    jobs = [(name, client.submit(model, archive, name)) for name, archive in digits.archives()]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        for name, job in jobs:
            bar = progress.add_task(name, total=1.0, state="queued")

            def seen(answer: Json, bar: Any = bar) -> None:
                done, total = answer["progress"].get("step") or 0, answer["progress"].get("total_steps") or 0
                share = 1.0 if answer["state"] == "succeeded" else (done / total if total else 0.0)
                phase = answer["progress"].get("phase") or ""
                label = phase if answer["state"] == "running" else answer["state"]
                progress.update(bar, completed=share, state=label)

            end = client.wait(job, seen=seen)
            if end["state"] != "succeeded":
                raise SystemExit(f"Job {job} of {name} ended {end['state']}: {end['error']}")


def show(metrics: Json) -> None:
    """Print the accuracy matrix and its summary."""
    table = Table(title="\nAccuracy of each version (row) on each task's held-out images (column)")
    table.add_column("version")
    for column in metrics["columns"]:
        table.add_column("/".join(column["classes"]), justify="right")
    for row, cells in zip(metrics["rows"], metrics["accuracy_matrix"], strict=True):
        table.add_row(str(row["version"]), *("–" if cell is None else f"{cell:.3f}" for cell in cells))
    console.print(table)
    figures = {
        "acc": "mean accuracy over all tasks",
        "bwt": "backward transfer",
        "forgetting": "mean forgetting",
        "learning_accuracy": "accuracy when just learned",
    }
    for key, words in figures.items():
        value = metrics["summary"][key]
        console.print(
            f"  {words:28} {'–' if value is None else f'{value:+.3f}' if key == 'bwt' else f'{value:.3f}'}"
        )


def check_download(client: Client, model: str, file: Path) -> None:
    """Download the latest version, verify it, run its own loading code and predict ten digits."""
    digest = client.download(model, "latest", file)
    console.print(
        f"\nDownloaded the latest version: {file.stat().st_size:,} bytes, sha256 {digest[:16]}… verified."
    )
    folder = file.parent / "model"
    folder.mkdir()
    with zipfile.ZipFile(file) as archive:
        for name in ("model.safetensors", "config.json", "README.md"):
            (folder / name).write_bytes(archive.read(name))
    network, config = load(folder)
    pixels, labels = load_digits(return_X_y=True)
    picked = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    size = config["image"]["size"]
    images = np.stack([_resize(pixels[index].reshape(8, 8), size) for index in picked])
    import torch  # here, so that the demo starts quickly

    mean, std = (torch.tensor(config["normalise"][k]).view(1, -1, 1, 1) for k in ("mean", "std"))
    with torch.inference_mode():
        batch = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - mean) / std
        answers = [config["classes"][row] for row in network(batch).argmax(1).tolist()]
    right = sum(answer == str(labels[index]) for answer, index in zip(answers, picked, strict=True))
    console.print(
        f"Loaded it with safetensors alone and predicted 0 … 9 as {' '.join(answers)} ({right} of 10 right)."
    )


def load(folder: Path) -> tuple[Any, Json]:
    """Run the loading code of the version's own model card in `folder`; return network and config."""
    code = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[0]
    scope: Json = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        # The model card of a version this service just made is what is being shown to work.
        exec(compile(code, "README.md", "exec"), scope)
    finally:
        os.chdir(before)
    return scope["network"], json.loads((folder / "config.json").read_text())


def _resize(digit: np.ndarray, size: int) -> np.ndarray:
    """An 8×8 digit (0–16) as uint8 [size, size, 3], by way of PNG as an upload would go."""
    png = io.BytesIO()
    Image.fromarray(np.rint(digit * (255 / 16)).astype(np.uint8)).save(png, "PNG")
    with Image.open(png) as image:
        return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))


if __name__ == "__main__":
    sys.exit(main())
