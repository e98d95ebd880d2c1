"""Predictions over HTTP on the packaged bases, beside the version's own network in this process.

    python -m bench.service.predict --photos FOLDER [--seconds 4] [--threads 1] [--sizes 32 224]
        [--clients 1 4 16 64] [--photos-per-request 1 8 32] [--compared 1000]

FOLDER has photos as `<class>/<image>`, of two classes or more. For each size two owners have a
model of the packaged base, which learns forty of them. Printed are:

- the first answer of a version after it was promoted, and the engine of answers once it is steady;
- images/s, p50 and p99 for each number of clients and of photos in a request. Before and after each
  cell the version's own graph answers in ONNX Runtime, and its network in torch, with as many
  threads and without decoding, HTTP or another process: ratios are to these. `ONNX + decoding`
  decodes the photos as well, one after the other;
- both owners at once: images/s of each;
- answers of the service beside the version's own in torch, for `--compared` photos: labels that
  differ, and the largest difference of a probability.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from urllib.parse import urlsplit

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from sqlalchemy import select

from core.contract.jobs.export_job import INPUT
from core.contract.manifest import Manifest
from core.database.session import Database
from core.database.tables import Owner
from core.ingest.decoding.resizing import FIRST, SquareResizingSettings
from core.ingest.images import decode_image_to_square_pixels
from core.learning.evaluation import predicting
from core.learning.export import graph
from core.learning.export.probability_module import ProbabilityModule
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.packaged import imagenet_base
from core.packaged.packaged_base import PACKAGED
from core.predictions.predictions import find_version_to_predict
from core.requests.actor import Actor
from core.settings import Settings
from core.storage import open_object_store
from core.storage.blobs import Blobs
from perennial import Perennial
from perennial.types import Unusable
from tools import service

CLASSES, IMAGES = 2, 20
BASES = {32: PACKAGED, 224: imagenet_base.NAME}
MAX_PIXELS = 50_000_000
BODIES = 8
"""Different requests of each kind that clients send."""
BARE_BATCH = 16
BARE_S = 1.0
STEADY_S = 300.0
BOUNDARY = "predict-bench"


@dataclass
class BareVersionPredictor:
    """A version's network and its ONNX graph in this process, without the service, for comparison."""

    manifest: Manifest
    network: Network
    method: Method
    run: Callable[[NDArray[np.uint8]], NDArray[np.float32]]

    def decode_photos(self, photos: Sequence[Path]) -> NDArray[np.uint8]:
        """Decode photos as the service does, to uint8 [N, size, size, channels]."""
        image = self.manifest.image
        resizing = SquareResizingSettings(image.crop, image.interpolation, image.decoding or FIRST)
        pixels = [
            decode_image_to_square_pixels(
                photo.read_bytes(), image.size, image.channels, MAX_PIXELS, resizing
            )
            for photo in photos
        ]
        return np.stack(pixels)

    def predict_probabilities(
        self, pixels: NDArray[np.uint8]
    ) -> tuple[list[str], NDArray[np.float32]]:
        """Predict labels and probabilities with the version's network in torch."""
        manifest = self.manifest
        return predicting.predict_images(
            self.network,
            pixels,
            normalise=manifest.normalise,
            batch=BARE_BATCH,
            scoring=predicting.SoftmaxScoring(self.method.predict_logits, manifest.logit_divisor),
        )


@dataclass
class BarePredictionRates:
    """Measures images per second without a service: by torch, by ONNX Runtime, and with decoding."""

    torch: list[float] = field(default_factory=list)
    onnx: list[float] = field(default_factory=list)
    decoding: list[float] = field(default_factory=list)

    def measure_rates_once_more(
        self, bare: BareVersionPredictor, photos: Sequence[Path], seconds: float = BARE_S
    ) -> tuple[float, float]:
        """Measure each rate once more; return the two of ONNX Runtime."""
        photos = photos[:BARE_BATCH]
        pixels = bare.decode_photos(photos)
        self.torch.append(
            _measure_image_rate(lambda: bare.predict_probabilities(pixels), len(pixels), seconds)
        )
        self.onnx.append(_measure_image_rate(lambda: bare.run(pixels), len(pixels), seconds))
        self.decoding.append(
            _measure_image_rate(lambda: bare.run(bare.decode_photos(photos)), len(pixels), seconds)
        )
        return self.onnx[-1], self.decoding[-1]


def main() -> None:
    """Measure prediction rates of the service and of bare libraries, by image size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--sizes", type=int, nargs="+", choices=sorted(BASES), default=sorted(BASES)
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--photos-per-request", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--compared", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    labels = sorted(path for path in options.photos.iterdir() if path.is_dir())[:CLASSES]
    photos = [(label.name, path) for label in labels for path in sorted(label.iterdir())]
    settings = {"PERENNIAL_THREADS": str(options.threads)}
    with (
        tempfile.TemporaryDirectory() as name,
        service.run_temporary_service(Path(name) / "data", settings) as running,
    ):
        for size in options.sizes:
            print_prediction_rates_for_size(running, photos, size, Path(name), options)


def print_prediction_rates_for_size(
    running: service.RunningService,
    photos: list[tuple[str, Path]],
    size: int,
    folder: Path,
    options: argparse.Namespace,
) -> None:
    """Print the prediction rates for images of one size."""
    owners = [f"first-{size}", f"second-{size}"]
    admin = Perennial(running.key, base_url=running.url)
    keys = [admin.keys.create("bench", owner=owner).secret for owner in owners]
    archive = write_photo_archive(choose_training_photos(photos), folder / f"{size}.zip")
    for key in keys:
        client = Perennial(key, base_url=running.url)
        client.models.create(
            "photos", "class", base=BASES[size], image={"size": size, "channels": 3}
        )
        client.submit("photos", archive).wait(600)
    files = [path for _, path in photos]
    print(f"\n## {BASES[size]}, {size} px")
    client = Perennial(keys[0], base_url=running.url)
    begin = time.perf_counter()
    response = client.predict("photos", files[:1])
    print(
        f"first answer after promotion: {(time.perf_counter() - begin) * 1000:.0f} ms",
        get_inference_engine_name(response),
    )
    for key in keys:
        predict_until_onnx_runtime_answers(Perennial(key, base_url=running.url), files)
    bare = load_bare_version(running.data_dir, owners[0], folder / f"graph-{size}", options.threads)
    print_differences_from_bare_version(client, bare, files[: options.compared])
    rates = BarePredictionRates()
    print(
        "| clients | photos | images/s | p50 ms | p99 ms | ÷ bare ONNX | ÷ ONNX + decoding |\n"
        "| --- | --- | --- | --- | --- | --- | --- |"
    )
    for clients in options.clients:
        for count in options.photos_per_request:
            before = rates.measure_rates_once_more(bare, files)
            # 64 are more than one owner may have under way.
            client_keys = keys if clients > 16 else keys[:1]
            elapsed, request_seconds = measure_predict_client_times(
                running, client_keys, files, folder, clients, count, options.seconds
            )
            onnx, decoding = (
                mean(pair)
                for pair in zip(before, rates.measure_rates_once_more(bare, files), strict=True)
            )
            rate = len(request_seconds) * count / elapsed
            p50, p99 = np.percentile(request_seconds, (50, 99)) * 1000
            print(
                f"| {clients} | {count} | {rate:.1f} | {p50:.0f} | {p99:.0f} | {rate / onnx:.2f} |"
                f" {rate / decoding:.2f} |",
                flush=True,
            )
    print(
        f"bare, images/s: torch {median(rates.torch):.1f}, ONNX {median(rates.onnx):.1f},"
        f" ONNX + decoding {median(rates.decoding):.1f}"
    )
    print_two_owner_rates(running, keys, files, folder, options.seconds)


def choose_training_photos(photos: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    """Choose the photos of each class to learn; the others are predicted."""
    labels = sorted({label for label, _ in photos})
    return [
        one for label in labels for one in [each for each in photos if each[0] == label][-IMAGES:]
    ]


def write_photo_archive(photos: list[tuple[str, Path]], path: Path) -> Path:
    """Write photos as an archive with a folder for each class."""
    with zipfile.ZipFile(path, "w") as archive:
        for label, photo in photos:
            archive.writestr(f"{label}/{photo.name}", photo.read_bytes())
    return path


def predict_until_onnx_runtime_answers(client: Perennial, files: Sequence[Path]) -> None:
    """Send predict requests until the service answers with ONNX Runtime, and print the time."""
    begin = time.monotonic()
    engine = "engine not named"
    while time.monotonic() < begin + STEADY_S:
        engine = get_inference_engine_name(client.predict("photos", files[:64]))
        if engine != "torch":
            break
        time.sleep(0.2)
    print(f"steady after {time.monotonic() - begin:.1f} s: {engine}")


def get_inference_engine_name(response: object) -> str:
    """Return the engine that a predict response names, if any."""
    return str(getattr(response, "engine", None) or "engine not named")


def load_bare_version(data: Path, owner: str, folder: Path, threads: int) -> BareVersionPredictor:
    """Load a version's network from the service's data folder, and build its ONNX graph."""
    settings = Settings(data_dir=data)
    db = Database(settings.resolved_database_url)
    with db.read() as session:
        owner_id = session.scalars(select(Owner.id).where(Owner.name == owner)).one()
    version = find_version_to_predict(
        db, Actor(owner_id, None, "read"), "photos", "production", None
    )
    blobs = Blobs(open_object_store(settings), settings.make_folder("cache"))
    paths = {name: Path(path) for name, path in version.fetch_part_paths(blobs).items()}
    db.close()
    manifest = version.manifest
    network, method = (
        predicting.load_version_network(manifest, paths),
        predicting.load_prediction_method(manifest, paths),
    )
    probability_module = ProbabilityModule(
        network, method, manifest.normalise, manifest.image.channels, manifest.logit_divisor
    )
    folder.mkdir()
    file = graph.write_onnx_graph(
        probability_module, manifest.image.channels, manifest.image.size, folder
    )[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        folder / file, options, providers=["CPUExecutionProvider"]
    )

    def run_graph(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        probabilities: NDArray[np.float32] = session.run(
            None, {INPUT: np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))}
        )[0]
        return probabilities

    return BareVersionPredictor(manifest, network, method, run_graph)


def print_differences_from_bare_version(
    client: Perennial, bare: BareVersionPredictor, files: Sequence[Path]
) -> None:
    """Print how far the service's predictions differ from those of the bare network."""
    labels, differences = 0, [0.0]
    classes = list(bare.manifest.classes or [])
    for begin in range(0, len(files), 50):
        file_chunk = files[begin : begin + 50]
        own_labels, bare_probabilities = bare.predict_probabilities(bare.decode_photos(file_chunk))
        response = client.predict("photos", file_chunk)
        for item, label, row in zip(
            response.predictions, own_labels, bare_probabilities, strict=True
        ):
            if isinstance(item, Unusable):
                raise RuntimeError(f"{item.name}: {item.error.detail}")
            labels += item.label != label
            differences += [
                abs(item.probabilities[name] - p) for name, p in zip(classes, row, strict=True)
            ]
    print(
        f"{len(files)} photos beside the version's own answers: {labels} other labels, largest "
        f"difference of a probability {max(differences):.1e}"
    )


def measure_predict_client_times(
    running: service.RunningService, keys: Sequence[str], files: Sequence[Path], folder: Path, clients: int, count: int,
    seconds: float,
) -> tuple[float, list[float]]:  # fmt: skip
    """Measure total and single request times of several clients that request predictions."""
    process = start_predict_clients(running, keys, files, folder, clients, count, seconds)
    return read_client_measurements(process)


def start_predict_clients(
    running: service.RunningService, keys: Sequence[str], files: Sequence[Path], folder: Path, clients: int, count: int,
    seconds: float,
) -> "subprocess.Popen[str]":  # fmt: skip
    """Start predict clients in a separate process."""
    address = urlsplit(running.url)
    bodies = []
    for number in range(BODIES):
        path = folder / f"body-{count}-{number}"
        path.write_bytes(
            build_photo_form([files[(number * count + at) % len(files)] for at in range(count)])
        )
        bodies.append(str(path))
    load = {
        "host": address.hostname, "port": address.port, "keys": list(keys), "bodies": bodies, "clients": clients,
        "path": "/v1/models/photos/versions/production/predict",
        "type": f"multipart/form-data; boundary={BOUNDARY}", "seconds": seconds,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.service.predict_load"],
        cwd=service.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(load))
    process.stdin.close()
    return process


def read_client_measurements(process: "subprocess.Popen[str]") -> tuple[float, list[float]]:
    """Read the measurements of the client process."""
    assert process.stdout is not None
    output = process.stdout.read()
    if process.wait():
        raise RuntimeError("clients failed")
    measured = json.loads(output)
    return measured["elapsed"], measured["taken"]


def build_photo_form(files: Sequence[Path]) -> bytes:
    """Build the multipart body of a predict request with photos."""
    parts = []
    for file in files:
        head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; '
            f'filename="{file.name}"\r\n\r\n'
        )
        parts += [head.encode(), file.read_bytes(), b"\r\n"]
    return b"".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


def print_two_owner_rates(
    running: service.RunningService,
    keys: Sequence[str],
    files: Sequence[Path],
    folder: Path,
    seconds: float,
) -> None:
    """Print the rates of two owners at the same time: one with sixteen clients, one with a single."""
    greedy = start_predict_clients(running, keys[:1], files, folder, 16, 8, seconds)
    modest = start_predict_clients(running, keys[1:], files, folder, 1, 1, seconds)
    many_s, many = read_client_measurements(greedy)
    few_s, few = read_client_measurements(modest)
    print(
        f"two owners: 16 clients of 8 photos {len(many) * 8 / many_s:.1f} images/s, p50 "
        f"{median(many) * 1000:.0f} ms; beside them 1 client of 1 photo {len(few) / few_s:.1f} "
        f"images/s, p50 {median(few) * 1000:.0f} ms"
    )


def _measure_image_rate(call: Callable[[], object], images: int, seconds: float) -> float:
    call()
    begin, calls = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        call()
        calls += 1
    return calls * images / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
