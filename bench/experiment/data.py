"""Images of a data set as files that a run can map: decoded once, then one file per set of classes.

A source is a folder of idx files (MNIST, Fashion-MNIST, KMNIST, QMNIST), of zip archives of
train/<class>/<image> and test/<class>/<image> (CIFAR-100 by tens), or of class folders in the same
layout. Archives and folders are read by the product's own ingest; without a test part it holds out
15 %. The path "bundled/digits" means the digits that scikit-learn brings, as archives;
"bundled/signed-digits" the same with half of the images as negatives.
"""

import gzip
import hashlib
import json
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.experiment.plan import PlanError, PlannedImages
from core.errors import PerennialError
from core.ingest.dataset import memory_map_image_dataset, write_image_dataset_file
from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
from core.ingest.limits import ArchiveLimits
from core.settings import Settings
from tools import digits

PARTS = ("train", "test")
BUNDLED = {"bundled/digits": False, "bundled/signed-digits": True}
"""Path → whether negatives are among the digits."""
_IDX_TYPES: dict[int, np.dtype[Any]] = {8: np.dtype("u1"), 12: np.dtype(">i4")}


@dataclass(frozen=True)
class DecodedExperimentDataSet:
    """A decoded data set of an experiment: class names, and its folder of safetensors files."""

    folder: Path
    names: tuple[str, ...]

    @property
    def content_digest(self) -> str:
        """Digest of the data set's content and of how it was decoded."""
        return self.folder.name


class ExperimentDatasetCache:
    """Creates and caches the dataset files that an experiment's runs read."""

    def __init__(self, data: Path, cache: Path) -> None:
        """data: what `path` of a plan is relative to."""
        self._data = data
        self._cache = cache
        self._sources: dict[tuple[str, int, int], DecodedExperimentDataSet] = {}

    def decode_experiment_data_set(self, images: PlannedImages) -> DecodedExperimentDataSet:
        """Return a data set in decoded form, decoding it on first use. Raises PlanError."""
        key = (images.path, images.size, images.channels)
        if key not in self._sources:
            self._sources[key] = self._decode_or_load_source(images)
        return self._sources[key]

    def get_image_shape(self, images: PlannedImages) -> dict[str, int]:
        """Return size and channels of the images in a data set, after padding."""
        pixels, _ = memory_map_image_dataset(
            self.decode_experiment_data_set(images).folder / "train.safetensors"
        )
        return {"size": pixels.shape[1] + 2 * images.pad, "channels": pixels.shape[3]}

    def make_dataset_file_of_classes(
        self,
        images: PlannedImages,
        classes: Sequence[int],
        part: str,
        split: tuple[int, int, int] | None = None,
    ) -> Path:
        """Write a dataset file with some classes (and images) of a data set, and return its path.

        split: (i, n, order): the i-th of n near-equal shares of each class's images, which are
        shuffled by `order`.
        """
        source = self.decode_experiment_data_set(images)
        limit = images.train_per_class if part == "train" else images.test_per_class
        facts: dict[str, Any] = {
            "classes": list(classes),
            "part": part,
            "limit": limit,
            "pad": images.pad,
        }
        if split is not None:
            facts["split"] = list(split)
        path = source.folder / f"{_digest_json_value(facts)}.safetensors"
        if not path.exists():
            pixels, labels = memory_map_image_dataset(source.folder / f"{part}.safetensors")
            picked = [_sample_rows_by_seed(np.flatnonzero(labels == c), limit) for c in classes]
            if split is not None:
                picked = [_select_share_of_rows(rows, *split) for rows in picked]
            new = np.repeat(np.arange(len(classes)), [len(rows) for rows in picked])
            block = pixels[np.concatenate(picked)]
            edge = (images.pad, images.pad)
            block = np.pad(block, ((0, 0), edge, edge, (0, 0)))
            new_path = path.with_suffix(".new")
            write_image_dataset_file(new_path, new, block.shape[1:], [block])
            new_path.rename(path)
        return path

    def _write_digits_folder(self, path: str) -> Path:
        """Return the folder with scikit-learn's digits, writing it on first use."""
        folder = self._cache / Path(path).name
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=_make_folder(folder.parent)) as scratch:
                new = _make_folder(Path(scratch) / "new")
                for name, archive in digits.build_digit_archives(signed=BUNDLED[path]):
                    (new / f"{name}.zip").write_bytes(archive)
                new.rename(folder)
        return folder

    def _decode_or_load_source(self, images: PlannedImages) -> DecodedExperimentDataSet:
        folder = (
            self._write_digits_folder(images.path)
            if images.path in BUNDLED
            else self._data / images.path
        )
        source_files = (
            sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []
        )
        if not source_files:
            raise PlanError(
                f"{folder} does not exist or holds no files (path {images.path!r}, below --data)"
            )
        idx = [p for p in source_files if "idx" in p.name]
        zips = [p for p in source_files if p.suffix == ".zip"]
        decode = {"decode": "idx"} if idx else {"size": images.size, "channels": images.channels}
        target = self._cache / _digest_json_value(
            {"files": _list_data_file_digests(folder, idx or zips or source_files), **decode}
        )
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                new = Path(scratch) / "new"
                new.mkdir()
                try:
                    if idx:
                        names = _convert_idx_files_to_dataset_files(idx, new)
                    else:
                        archives = zips or [
                            _write_archive_of_files(
                                folder, source_files, Path(scratch) / "packed.zip"
                            )
                        ]
                        names = _convert_class_archives_to_dataset_files(
                            archives, images, Path(scratch), new
                        )
                except (OSError, ValueError, EOFError, zlib.error, PerennialError) as error:
                    raise PlanError(f"{folder}: {error}") from error
                (new / "classes.json").write_text(json.dumps(names, ensure_ascii=False))
                new.rename(target)
        return DecodedExperimentDataSet(
            target, tuple(json.loads((target / "classes.json").read_text()))
        )


def _convert_idx_files_to_dataset_files(files: list[Path], out: Path) -> list[str]:
    """Convert four idx files like MNIST's to dataset files in `out`; return the class names."""
    highest = 0
    for part, words in (("train", ("train",)), ("test", ("t10k", "test"))):
        pixels, labels = (
            read_idx_array(
                _require_single_file(
                    [p for p in files if what in p.name and any(w in p.name for w in words)],
                    part,
                    what,
                )
            )
            for what in ("images", "labels")
        )
        labels = (
            labels[:, 0] if labels.ndim == 2 else labels
        )  # QMNIST: the class is the first of 8 columns
        if pixels.ndim != 3 or pixels.shape[1] != pixels.shape[2] or len(pixels) != len(labels):
            raise ValueError(f"{part}: images {pixels.shape} and labels {labels.shape} do not fit")
        shape = (pixels.shape[1], pixels.shape[2], 1)
        write_image_dataset_file(
            out / f"{part}.safetensors", labels.astype(np.int64), shape, [pixels[..., None]]
        )
        highest = max(highest, int(labels.max()))
    return [str(c) for c in range(highest + 1)]


def read_idx_array(path: Path) -> npt.NDArray[Any]:
    """Return the array in an idx file, gzipped or not. Raises ValueError for any other file."""
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES:
        raise ValueError(f"{path.name} is not an idx file of bytes or 32-bit integers")
    shape = np.frombuffer(raw, ">i4", raw[3], offset=4)
    kind = _IDX_TYPES[raw[2]]
    if len(raw) != 4 + 4 * raw[3] + int(shape.prod()) * kind.itemsize:
        raise ValueError(f"{path.name} is cut short: its header promises {tuple(shape.tolist())}")
    values: npt.NDArray[Any] = np.frombuffer(raw, kind, offset=4 + 4 * raw[3])
    return values.reshape(shape)


def _require_single_file(files: list[Path], part: str, what: str) -> Path:
    if len(files) != 1:
        raise ValueError(f"needs one idx file of {part} {what}, found {len(files)}")
    return files[0]


def _write_archive_of_files(folder: Path, files: list[Path], path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            archive.write(file, file.relative_to(folder).as_posix())
    return path


def _convert_class_archives_to_dataset_files(
    archives: list[Path], images: PlannedImages, scratch: Path, out: Path
) -> list[str]:
    """Convert zip archives with different classes to dataset files; return the class names."""
    names: list[str] = []
    blocks: dict[str, list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]] = {
        part: [] for part in PARTS
    }
    for number, archive in enumerate(archives):
        done = decode_archive_to_datasets(
            archive,
            "zip",
            scratch / str(number),
            IngestOptions(images.size, images.channels, ArchiveLimits.from_settings(Settings())),
        )
        repeated = sorted(set(names) & set(done.class_list))
        if repeated:
            raise ValueError(f"{archive.name}: the class {repeated[0]!r} is in another archive too")
        for part, file in zip(PARTS, (done.train, done.held_out), strict=True):
            pixels, labels = memory_map_image_dataset(file)
            blocks[part].append((pixels, labels + len(names)))
        names += done.class_list
    shape = (images.size, images.size, images.channels)
    for part, part_blocks in blocks.items():
        labels = np.concatenate([labels for _, labels in part_blocks])
        write_image_dataset_file(
            out / f"{part}.safetensors", labels, shape, (pixels for pixels, _ in part_blocks)
        )
    for number in range(len(archives)):
        shutil.rmtree(scratch / str(number))
    return names


def _sample_rows_by_seed(rows: npt.NDArray[np.int64], limit: int | None) -> npt.NDArray[np.int64]:
    """Sample `limit` row indices by a fixed seed, in ascending order; all if there are fewer."""
    if limit is None or len(rows) <= limit:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:limit])


def _select_share_of_rows(
    rows: npt.NDArray[np.int64], i: int, n: int, order: int
) -> npt.NDArray[np.int64]:
    """Return the i-th of n equal shares of shuffled row indices. Raises PlanError for an empty
    share.
    """
    shuffled = np.random.default_rng([order, len(rows)]).permutation(rows)
    share = np.sort(np.array_split(shuffled, n)[i])
    if not len(share):
        raise PlanError(f"a class has {len(rows)} training images, too few for {n} splits")
    return share


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _list_data_file_digests(folder: Path, files: Iterable[Path]) -> list[tuple[str, str]]:
    """Return (path, sha256) of every file of a data set."""
    return [
        (p.relative_to(folder).as_posix(), hashlib.sha256(p.read_bytes()).hexdigest())
        for p in sorted(files)
    ]


def _digest_json_value(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
