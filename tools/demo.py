"""`make demo`: labelled batches become versions of a model over HTTP, without installation.

It starts the embedded service on a free port and uploads scikit-learn's digits as five batches of
two classes. It shows the learning of each. The last one is learned by fine-tuning first, which
forgets, so that its version is held; then by the model's own recipe. The accuracy matrix follows.
Then it downloads the last version, verifies its digest, and predicts with the downloaded file
alone. On a terminal, the service stays until Ctrl-C, for a look at its pages.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from core.settings import Settings
from perennial import GateHeld, JobEnded, Perennial, types
from tools import digits, service
from tools.serve_demo import DemoJobBars
from worker import data_folder_lock
from worker.devices.torch_check import FIRST_START, has_torch_check_passed

Json = dict[str, Any]
console = Console()
BASE = "perennial/resnet20-cifar100"
"""Base for small images, since the digits have eight pixels a side."""
FORGETS = {"method": "finetune", "epochs": 2}
"""Recipe under which the last batch is learned first: training on its images alone."""


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", help="continual-learning method (default: the service's)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the recipe (default: 0)")
    options = parser.parse_args()
    recipe: Json = {"seed": options.seed}
    if options.method is not None:
        recipe["method"] = options.method
    try:
        return run_demo(recipe)
    except service.ServiceNotReady as error:  # show the service's own message without a traceback
        problem = str(error)
    except data_folder_lock.DataDirectoryInUse as used:
        problem = (
            f"{used.holder} Stop it (Ctrl-C in its terminal, or {used.stop}), or give the demo a "
            "directory of its own: PERENNIAL_DATA_DIR=demo-data make demo"
        )
    # No markup, because a path in the message may have brackets.
    console.print(problem, style="red", markup=False, highlight=False, soft_wrap=True)
    return 1


def run_demo(recipe: Json) -> int:
    """Run the digits demo with a model of this recipe: start a service, learn, predict, download.

    Raises:
        tools.service.ServiceNotReady: the service does not start.
        worker.data_folder_lock.DataDirectoryInUse: a service uses the data directory.
    """
    data_dir = Path(os.environ.get("PERENNIAL_DATA_DIR", "perennial-data")).absolute()
    # Refuses a directory in use, before anything is started.
    with data_folder_lock.lock_data_directory(data_dir):
        console.print(f"Starting Perennial with its data in {data_dir} …")
    if not has_torch_check_passed(Settings(data_dir=data_dir)):
        console.print(FIRST_START)
    with (
        service.run_temporary_service(data_dir) as running,
        Perennial(running.key, base_url=running.url) as client,
    ):
        console.print(f"Ready at {running.url}  (API documentation: {running.url}/docs)\n")
        # With the time, because a repeated demo needs a name that is not taken.
        name = f"digits-{time.strftime('%Y%m%d-%H%M%S')}"
        # A method that forgets is shown forgetting, so its versions must not be held.
        gate = {"checks": "off"} if "method" in recipe else {}
        model = client.models.create(name, scenario="class", base=BASE, recipe=recipe, gate=gate)
        method = model.recipe.method.name if model.recipe.method else "its recipe"
        console.print(
            f"Model [b]{name}[/b] starts from {model.base} and learns by {method}: "
            "five batches of two digits each, one after another."
        )
        held_version = submit_and_follow_batches(client, name, shows_held="method" not in recipe)
        print_accuracy_matrix(client.metrics.retrieve(name))
        with tempfile.TemporaryDirectory() as folder:
            download_version_and_predict_digits(client, name, Path(folder) / "model.zip")
        console.print(
            f"\nThe versions of [b]{name}[/b] are kept; .venv/bin/perennial versions list {name} "
            "lists them."
        )
        if console.is_terminal and sys.stdin.isatty():
            print_demo_page_address(running.url, name, held_version)
            console.print(
                f"Log in with the key in {data_dir / 'admin-key'}. Ctrl-C stops the service."
            )
            with contextlib.suppress(KeyboardInterrupt):
                running.process.wait()
            return 0
    console.print("To look at them in a browser, run make serve, and open its page:")
    print_demo_page_address(
        f"http://127.0.0.1:{os.environ.get('PERENNIAL_PORT', '8000')}", name, held_version
    )
    return 0


def print_demo_page_address(url: str, model: str, held_version: int | None) -> None:
    """Print the URL of the demo's page that a person should open first."""
    page = f"{url}/ui/models/{model}"
    if held_version is not None:
        page += f"/compare?a={held_version - 1}&b={held_version}"
        console.print(
            f"\nThe images that version {held_version} forgot, beside the version before it:"
        )
    # On a line of its own and never wrapped, so that a terminal makes it a link.
    console.print(f"\n{page}\n", soft_wrap=True, markup=False)


def submit_and_follow_batches(client: Perennial, model: str, *, shows_held: bool) -> int | None:
    """Submit the demo's five digit archives, and follow each job with a bar.

    Args:
        shows_held: learn the last batch by fine-tuning first, and then again.

    Returns:
        The version that was held because it forgot, if any.
    """
    archives = digits.build_digit_archives()
    *first, last = archives if shows_held else [*archives, None]
    jobs = [(one[0], client.submit(model, one[1], name=one[0])) for one in first if one]
    try:
        with DemoJobBars(console) as bars:
            for name, job in jobs:
                bars.show_job_until_ended(name, job)
            if last is None:
                return None
            job = client.submit(model, last[1], name=last[0], recipe=FORGETS)
            try:
                bars.show_job_until_ended(f"{last[0]} by fine-tuning", job)
            except GateHeld:
                retried_job = client.jobs.retry(job.id, recipe={})
                bars.show_job_until_ended(f"{last[0]} again, by the model's recipe", retried_job)
                return job.job.version if job.job else None
    except JobEnded as ended:  # a held version would make later batches wait for a person
        raise SystemExit(str(ended)) from None
    return None


def print_accuracy_matrix(metrics: types.Metrics) -> None:
    """Print the accuracy matrix of a model and its summary."""
    table = Table(title="\nAccuracy of each version (row) on each task's held-out images (column)")
    table.add_column("version")
    for column in metrics.columns:
        table.add_column("/".join(column.classes), justify="right")
    for row, cells in zip(metrics.rows, metrics.accuracy_matrix, strict=True):
        table.add_row(str(row.version), *("–" if cell is None else f"{cell:.3f}" for cell in cells))
    console.print(table)
    figures = {
        "acc": "mean accuracy over all tasks",
        "bwt": "backward transfer",
        "forgetting": "mean forgetting",
        "learning_accuracy": "accuracy when just learned",
    }
    for key, words in figures.items():
        value = getattr(metrics.summary, key)
        console.print(
            f"  {words:28} "
            f"{'–' if value is None else f'{value:+.3f}' if key == 'bwt' else f'{value:.3f}'}"
        )


def download_version_and_predict_digits(client: Perennial, model: str, file: Path) -> None:
    """Download the latest version, verify its digest, and predict ten digits without the service."""
    download = client.download(model, "latest", file)
    console.print(
        f"\nDownloaded the latest version: {download.bytes:,} bytes, sha256 "
        f"{download.sha256[:16]}… verified."
    )
    folder = file.parent / "model"
    folder.mkdir()
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            # Only the last part of the name: a zip may name paths outside of the folder.
            (folder / Path(name).name).write_bytes(archive.read(name))
    # As files, because the model card's code reads files.
    images, expected_labels = _write_image_of_each_digit(folder)
    # In a process of its own, so that the model card's code shows what it can do alone.
    done = subprocess.run(
        [sys.executable, "-c", extract_loading_code_of_model_card(folder) + PREDICT, *images],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    predictions = json.loads(done.stdout)
    right = sum(
        prediction == label for prediction, label in zip(predictions, expected_labels, strict=True)
    )
    console.print(
        f"Loaded it with its own model card's code (torch and safetensors, no Perennial) and "
        f"predicted 0 … 9 as {' '.join(predictions)}: {right} of 10 right."
    )


PREDICT = """
import sys

with torch.inference_mode():
    rows = network(normalise(torch.stack([read(path) for path in sys.argv[1:]]))).argmax(1)
print(json.dumps([config["classes"][row] for row in rows.tolist()]))
"""


def extract_loading_code_of_model_card(folder: Path) -> str:
    """Extract the Python code in a model card that loads the network and reads images."""
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return "\n".join(blocks).split("with torch.inference_mode():")[0]


def _write_image_of_each_digit(folder: Path) -> tuple[list[str], list[str]]:
    """Write one image of each digit as PNG to `folder`; return file names and labels."""
    pixels, labels = load_digits(return_X_y=True)
    names = []
    for digit in range(10):
        image = pixels[int(np.flatnonzero(labels == digit)[0])].reshape(8, 8)
        names.append(f"digit-{digit}.png")
        Image.fromarray(np.rint(image * (255 / 16)).astype(np.uint8)).save(folder / names[-1])
    return names, [str(digit) for digit in range(10)]


if __name__ == "__main__":
    sys.exit(main())
