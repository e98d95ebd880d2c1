"""Folders that a job writes: snapshots to resume from, the best state so far, and the result.

A snapshot is written beside its place and renamed, so that a folder under its final name is
complete. A best state and a result are tensors (one safetensors file per part) and `result.json`;
an event announces when one is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from core.contract.architecture import NetworkFamilyDescription, Normalisation, TaskHeadDescription
from core.contract.document import Document
from core.contract.jobs.job_result import LearnedNetworkRecord, MeasuredVersion, NewVersionPartFile
from core.contract.jobs.job_spec import LearnJobSpec
from core.contract.jobs.snapshot import SnapshotDocument
from core.contract.manifest import TOTALS, Environment, ManifestMethod
from core.learning.data.held_out_features import HeldOutFeatures
from core.learning.evaluation import stored_predictions
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.networks.network import get_type_of_part_name
from core.learning.numerics import NumericsSettings
from core.learning.problems.problem import PredictionBatch
from core.learning.state import load_tensors, save_tensors, sync_path_to_disk

SNAPSHOT_JSON = "snapshot.json"
SNAPSHOT_TENSORS = "tensors.safetensors"

Part = tuple[str, str, Mapping[str, Tensor]]
"""A part to write: name, type, tensors."""


def copy_network_as_version_parts(
    network: Network, tensors: Mapping[str, Tensor] | None = None
) -> list[Part]:
    """Copy the network's tensors as version parts; `tensors` replaces their values."""
    parts = network.copy_parts_to_cpu(tensors).items()
    return [(name, get_type_of_part_name(name), of_part) for name, of_part in parts]


def read_learn_job_spec(path: str) -> LearnJobSpec:
    """Read the spec of a job process from a file."""
    return LearnJobSpec.from_json(json.loads(Path(path).read_text()))


def read_training_snapshot(folder: Path) -> tuple[dict[str, Tensor], SnapshotDocument]:
    """Read a training snapshot of `write_training_snapshot`.

    Raises ValueError for one of another format.
    """
    document = SnapshotDocument.from_json(json.loads((folder / SNAPSHOT_JSON).read_text()))
    return load_tensors(folder / SNAPSHOT_TENSORS), document


def write_training_snapshot(
    out: Path, tensors: Mapping[str, Tensor], document: SnapshotDocument
) -> Path:
    """Write a training snapshot to a folder in `out`; return the folder."""
    final, temporary = out / f"snapshot-{document.number}", out / f".snapshot-{document.number}"
    shutil.rmtree(temporary, ignore_errors=True)
    # A resumed attempt may write the same number again.
    shutil.rmtree(final, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_tensors(tensors, temporary / SNAPSHOT_TENSORS)
    _write_json_durably(temporary / SNAPSHOT_JSON, document)
    # On disk before the rename: after a power loss a folder under its final name must be complete.
    sync_path_to_disk(temporary)
    temporary.rename(final)
    sync_path_to_disk(out)
    return final


def replace_network_result_folder(
    out: Path,
    name: str,
    parts: Iterable[Part],
    document: LearnedNetworkRecord,
    write_beside: Callable[[Path], Mapping[str, object]] = lambda folder: {},
) -> Path:
    """Write a result's parts, and its `document` listing them as `result.json`, to `out/name`.

    Returns the folder.

    Args:
        out: the job's folder.
        name: name of the new folder, which replaces an old one.
        parts: name, type and tensors of each part.
        document: the fields of the result.
        write_beside: writes further files to the folder, and returns the fields of the document
            that list them.
    """
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "parts").mkdir(parents=True)
    listed: list[NewVersionPartFile] = []
    for part, kind, tensors in parts:
        save_tensors(tensors, folder / "parts" / f"{part}.safetensors")
        listed.append(NewVersionPartFile(name=part, type=kind, file=f"parts/{part}.safetensors"))
    fields: dict[str, object] = {"parts": listed}
    fields |= write_beside(folder)
    _write_json_durably(folder / "result.json", document.model_copy(update=fields))
    # A file's name is an entry of its folder, which needs a sync of its own.
    sync_path_to_disk(folder / "parts")
    sync_path_to_disk(folder)
    return folder


def describe_network_for_result(
    network: Network,
    method: Method,
    hyper: Mapping[str, object],
    normalise: Normalisation,
    environment: Environment,
    steps: int,
) -> LearnedNetworkRecord:
    """Describe a trained network for a job result, without its tensors.

    Args:
        network: the network.
        method: the method that trained it.
        hyper: of the method, without its name.
        normalise: mean and standard deviation of its images.
        environment: software and hardware that its numbers depend on besides its inputs.
        steps: of the optimizer, so far.
    """
    description = network.describe_for_manifest()
    return LearnedNetworkRecord(
        classes=network.classes,
        heads=[
            TaskHeadDescription(task=task, classes=names)
            for task, names in network.head_classes.items()
        ],
        network=None if description is None else NetworkFamilyDescription.from_json(description),
        method=ManifestMethod(
            name=method.name,
            hyper=dict(hyper),
            state=method.state.collect_json_by_type(),
            predicts_with=list(method.predicts_with),
        ),
        normalise=normalise,
        environment=environment,
        steps=steps,
    )


def describe_environment(
    device: torch.device, numerics: NumericsSettings, devices: Sequence[str]
) -> Environment:
    """Describe the software and hardware on which a run's numbers depend, besides its inputs.

    Args:
        device: of the run.
        numerics: of the run.
        devices: kinds of devices that it has run on, in their order.
    """
    environment = Environment(
        torch=torch.__version__,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        precision=numerics.format,
        deterministic=numerics.deterministic,
        nondeterministic=list(numerics.operations),
    )
    # Named only after a move: manifests of other runs stay as they are.
    if len(devices) < 2:
        return environment
    return environment.model_copy(update={"devices": list(devices)})


def _write_json_durably(path: Path, document: Document) -> None:
    """Write a JSON file and wait until it is on disk."""
    # As one text: written in pieces, a document of many tasks takes ten times as long. NaN is no
    # JSON, and other readers would refuse the document.
    text = json.dumps(document.to_json(), allow_nan=False, sort_keys=True, ensure_ascii=False)
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write_predictions_features_and_totals(
    folder: Path,
    predictions: Mapping[tuple[MeasuredVersion, int], PredictionBatch],
    features: HeldOutFeatures,
    totals: Mapping[str, Tensor],
) -> dict[str, object]:
    """Write the files of a result besides its parts: predictions, features and feature sums."""
    listed: dict[str, object] = {
        "answers": stored_predictions.write_prediction_file(folder, predictions)
    }
    if features.new:
        listed["held_out_features"] = features.write_new_features(folder)
    if totals:
        name = f"{TOTALS}.safetensors"
        save_tensors(totals, folder / name)
        listed[TOTALS] = name
    return listed
