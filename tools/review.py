"""Accuracy on the straight line from a version back to an older one: OLOR's zero-shot review.

    python -m tools.review OLD NEW ARCHIVE [ARCHIVE …]

NEW is the download of a version; OLD that of an earlier version of the same model, or a base
(.safetensors). It prints the accuracy on each archive at θ_new + k/50 (θ_old - θ_new) for k = 0 …
50 (Huang et al. 2024, arXiv 2401.10962). An archive is one that could be uploaded; if it has a test
part, only that part counts. In the task scenario its head is named as well: `2=week-31.zip`. A k
that is chosen here is fitted to these archives.

The line covers parameters that both versions have, rows of a head by class label, and BatchNorm's
running means and variances. So k = 50 is exactly the older backbone. Parameters that only NEW has
stay unchanged. For a linearised version (dlcft), the line covers the displacement; with its base as
OLD it ends at zero.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch import Tensor

from core.contract.architecture import Normalisation
from core.errors import PerennialError
from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
from core.ingest.limits import ArchiveLimits
from core.ingest.readers.registry import FORMATS
from core.ingest.sniff import SNIFF_BYTES, detect_upload_format
from core.learning.data.dataset import Dataset
from core.learning.evaluation.evaluate import score_network_on_task
from core.learning.networks import HeadSpec, ImageSpec, Network, build_uninitialised_network
from core.learning.networks.families import rebuild_described_network
from core.learning.networks.interpolation import interpolate_weights
from core.learning.networks.linear.linearised import BACKBONE, DISPLACEMENT, LinearisedNetwork
from core.learning.precision import InputNormaliser, choose_torch_device, move_network_to_device

STEPS = 50


@dataclass(frozen=True)
class DownloadedVersion:
    """A downloaded version: its config.json and its weights by name."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class InterpolationTestImages:
    """Labelled images on which interpolated networks are evaluated.

    `task` is the head's task in the task scenario, else 0, which is unused.
    """

    name: str
    task: int
    data: Dataset


@dataclass(frozen=True)
class InterpolationPoint:
    """Accuracies (0 to 1) of the network at one point of the interpolation towards the older
    version.
    """

    k: int
    share: float
    accuracies: list[float]

    @property
    def mean_accuracy(self) -> float:
        """Mean accuracy over the test sets, which count equally regardless of their sizes."""
        return sum(self.accuracies) / len(self.accuracies)


def read_downloaded_version(path: Path) -> DownloadedVersion:
    """Read a version from a downloaded zip, or a base from a safetensors file.

    Raises:
        ValueError: the file is neither.
    """
    if not zipfile.is_zipfile(path):
        try:
            return DownloadedVersion(
                {}, {f"backbone.{name}": t for name, t in load_file(path).items()}
            )
        except SafetensorError as error:
            raise ValueError(f"{path} is neither a version's zip nor a safetensors file") from error
    with zipfile.ZipFile(path) as archive:
        try:
            return DownloadedVersion(
                json.loads(archive.read("config.json")), load(archive.read("model.safetensors"))
            )
        except KeyError as error:
            raise ValueError(f"{path} is no download of a version: {error.args[0]}") from error


def build_version_network(version: DownloadedVersion) -> Network:
    """Build the network of a downloaded version, in eval mode.

    Raises:
        ValueError: the version is a base, has no classes, or has other tensors.
    """
    config = version.config
    if not (config.get("classes") or config.get("heads")):
        raise ValueError("the newer version has learned no classes; is the order OLD NEW?")
    plain = build_uninitialised_network(
        config["architecture"],
        ImageSpec.parse_image_field(config["image"]),
        config["scenario"],
        HeadSpec.from_manifest(config),
    )
    network = rebuild_described_network(plain, config.get("network"))
    if strange := version.tensors.keys() ^ network.state_dict().keys():
        raise ValueError(
            f"{sorted(strange)[0]} is not shared by the file and its network: only versions that "
            "answer by their heads can be reviewed"
        )
    network.load_state_dict(version.tensors)
    return network.eval()


def build_older_interpolation_end_weights(
    old: DownloadedVersion, new: DownloadedVersion
) -> dict[str, Tensor]:
    """Return the weights at the end of the interpolation, made from the older version's ones.

    These are the older version's tensors under the names of `new`; parameters that are not
    interpolated are left out.

    Raises:
        ValueError: the two versions share no backbone.
    """
    old = _express_older_version_as_displacement(old, new)
    for key in ("architecture", "image", "scenario"):
        # A base has no config, and fits if its tensors do.
        if key in old.config and old.config[key] != new.config[key]:
            raise ValueError(
                f"the versions differ in {key}: {old.config[key]} and {new.config[key]}"
            )
    rows_of = {"head": (old.config.get("classes") or [], new.config.get("classes") or [])}
    labels = {head["task"]: head["classes"] for head in old.config.get("heads") or []}
    for head in new.config.get("heads") or []:
        rows_of[f"heads.{head['task']}"] = (labels.get(head["task"], []), head["classes"])
    end: dict[str, Tensor] = {}
    for name, tensor in new.tensors.items():
        owner, before = name.rpartition(".")[0], old.tensors.get(name)
        # Counters have no points in between, and a missing head is no part of the line.
        if not tensor.is_floating_point() or (before is None and not name.startswith(BACKBONE)):
            continue
        if before is None:
            raise ValueError(f"the older version lacks the tensor {name}")
        if owner in rows_of and before.shape[1:] == tensor.shape[1:]:
            end[name] = _replace_head_rows_of_known_labels(before, tensor, *rows_of[owner])
        elif before.shape == tensor.shape:
            end[name] = before
        else:
            shapes = f"{tuple(before.shape)} and {tuple(tensor.shape)}"
            raise ValueError(f"the versions differ in the shape of {name}: {shapes}")
    return end


def _express_older_version_as_displacement(
    old: DownloadedVersion, new: DownloadedVersion
) -> DownloadedVersion:
    """Express the older version as an expansion around the newer one's weights, if the newer is
    one.

    A base is displaced by zero.

    Raises:
        ValueError: they are not expanded around the same weights.
    """
    network = new.config.get("network") or {}
    if network.get("family") != LinearisedNetwork.family or not network["frozen"]:
        return old
    tensors = dict(old.tensors)
    if not any(name.startswith(DISPLACEMENT) for name in tensors):
        image = ImageSpec.parse_image_field(new.config["image"])
        plain = build_uninitialised_network(
            new.config["architecture"], image, new.config["scenario"]
        )
        of_backbone = {
            n.removeprefix(BACKBONE): t for n, t in tensors.items() if n.startswith(BACKBONE)
        }
        plain.backbone.load_base_weights(of_backbone)
        expanded = LinearisedNetwork(plain, slope=network["slope"], fixed_head=False, frozen=True)
        tensors |= {
            n: t for n, t in expanded.state_dict().items() if n.startswith((BACKBONE, DISPLACEMENT))
        }
    for name, tensor in new.tensors.items():
        if not name.startswith(BACKBONE):
            continue
        before = tensors.get(name)
        if (
            before is None
            or before.shape != tensor.shape
            or not torch.allclose(before, tensor, rtol=1e-4)
        ):
            raise ValueError(
                f"the versions are not expanded around the same weights: {name} differs"
            )
    return DownloadedVersion(old.config, tensors)


def _replace_head_rows_of_known_labels(
    before: Tensor, now: Tensor, old_labels: Sequence[str], labels: Sequence[str]
) -> Tensor:
    """Copy the newer version's head, with the older version's rows for the labels it knew."""
    row_of = {label: row for row, label in enumerate(old_labels)}
    rows = now.clone()
    for i, label in enumerate(labels):
        if label in row_of:
            rows[i] = before[row_of[label]]
    return rows


def decode_labelled_archive(
    argument: str, network: Network, image: ImageSpec, folder: Path
) -> InterpolationTestImages:
    """Decode the labelled images of `ARCHIVE` or `TASK=ARCHIVE` into `folder`.

    Raises ValueError, OSError or ingest's errors.
    """
    task, file = 0, argument
    if network.scenario == "task":
        number, _, file = argument.partition("=")
        if number not in map(str, network.head_classes) or not file:
            heads = ", ".join(map(str, network.head_classes))
            raise ValueError(f"{argument}: name the head, as TASK=ARCHIVE; there are {heads}")
        task = int(number)
    path = Path(file)
    with path.open("rb") as opened:
        kind = detect_upload_format(opened.read(SNIFF_BYTES), None)
    # No share is held out: every image is measured on, unless the archive has a test part.
    options = IngestOptions(
        image.size,
        image.channels,
        ArchiveLimits(),
        allowed_classes=network.list_classes(task),
        held_out_share=0.0,
    )
    done = decode_archive_to_datasets(path, kind, folder, options)
    data = Dataset.read_dataset_file(
        done.held_out if done.n_held_out else done.train, done.class_list
    )
    return InterpolationTestImages(path.name, task, data)


def measure_accuracies_along_interpolation(
    network: Network,
    start: Mapping[str, Tensor],
    end: Mapping[str, Tensor],
    sets: Sequence[InterpolationTestImages],
    inputs: InputNormaliser,
) -> Iterator[InterpolationPoint]:
    """Interpolate the weights between two versions, and yield the accuracies at each point."""
    for k in range(STEPS + 1):
        share = k / STEPS
        # Into the same network, so that 51 points need the memory of one.
        network.load_state_dict(interpolate_weights(start, end, share))
        scores = [
            score_network_on_task(network, each.data, each.task, Network.forward, inputs)
            for each in sets
        ]
        yield InterpolationPoint(k, share, [float(of_task.double().mean()) for of_task in scores])


def main(arguments: list[str]) -> None:
    """Measure accuracies between two versions of a model by interpolating weights, and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "old", type=Path, metavar="OLD", help="an earlier version (.zip) or a base (.safetensors)"
    )
    parser.add_argument("new", type=Path, metavar="NEW", help="a version (.zip)")
    parser.add_argument(
        "archives", nargs="+", metavar="ARCHIVE", help=f"labelled images: a {FORMATS}"
    )
    chosen = parser.parse_args(arguments)
    try:
        old, new = read_downloaded_version(chosen.old), read_downloaded_version(chosen.new)
        network = build_version_network(new)
        end = build_older_interpolation_end_weights(old, new)
        image = ImageSpec.parse_image_field(new.config["image"])
        with tempfile.TemporaryDirectory() as folder:
            sets = [
                decode_labelled_archive(argument, network, image, Path(folder) / str(i))
                for i, argument in enumerate(chosen.archives)
            ]
            device = choose_torch_device("auto")
            move_network_to_device(network, device)
            inputs = InputNormaliser(
                Normalisation.from_json(new.config["normalise"]), image.channels, device
            )
            _print_interpolation_accuracies(
                sets,
                measure_accuracies_along_interpolation(network, new.tensors, end, sets, inputs),
            )
    except (PerennialError, OSError, ValueError) as error:
        raise SystemExit(f"cannot review: {error}") from error


def _print_interpolation_accuracies(
    sets: Sequence[InterpolationTestImages], points: Iterator[InterpolationPoint]
) -> None:
    names = [each.name[-20:] for each in sets]
    widths = [max(8, len(name)) for name in names]
    print(
        " ".join(
            [" k", "share", *(f"{n:>{w}}" for n, w in zip(names, widths, strict=True)), "    mean"]
        )
    )
    best: InterpolationPoint | None = None
    for point in points:
        cells = (f"{a:>{w}.4f}" for a, w in zip(point.accuracies, widths, strict=True))
        # Flushed, because each point takes a pass over all images.
        print(
            f"{point.k:2}",
            f" {point.share:.2f}",
            *cells,
            f"  {point.mean_accuracy:.4f}",
            flush=True,
        )
        # Of equal means the first, which is nearest to the newer version.
        best = point if best is None or point.mean_accuracy > best.mean_accuracy else best
    assert best is not None
    print(
        f"highest mean {best.mean_accuracy:.4f} at k = {best.k}, {best.share:.0%} of the way to the older "
        f"version"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
