"""Unsupported files that contain images: their kinds, and commands that convert them."""

import string
from collections.abc import Sequence
from typing import NamedTuple

from perennial.reading_rules.names import RAW_SUFFIXES, VIDEO_SUFFIXES

_PLAIN = frozenset(string.ascii_letters + string.digits + "._-")
FIRST_BYTES = 8
"""Number of first bytes of a file that suffice for `find_unsupported_file_kind`."""


class ConvertibleFileKind(NamedTuple):
    """Kind of an unsupported image file: a noun with its article, and the commands that convert it.

    In the commands, FILE is the file and FOLDER the folder that contains it.
    """

    description: str
    commands: tuple[str, ...]

    @property
    def conversion_advice(self) -> str:
        """Advice with commands that convert an unsupported file, as a sentence without its full
        stop.
        """
        return f"Convert it first: {' ; '.join(self.commands)}"

    def format_conversion_advice(self, file: str) -> str:
        """Return advice with the commands that convert an unsupported file, with its name if a
        shell reads it unchanged.
        """
        name, folder = file.rpartition("/")[2], file.rpartition("/")[0] or "."
        # Such a name would have to be quoted, and its quotes differ in a shell and in Python.
        if not set(name) <= _PLAIN or not set(folder) <= _PLAIN | {"/"} or name.startswith("-"):
            return self.conversion_advice
        return self.conversion_advice.replace("FILE", file).replace("FOLDER", folder)


_SUBMIT = "perennial submit MODEL batch/"
_IDX = ConvertibleFileKind(
    "an IDX file, the form in which MNIST is published",
    (
        "import numpy as np; read = lambda file, start: np.frombuffer(open(file, 'rb').read(), "
        "np.uint8, offset=start)",
        "np.savez_compressed('batch.npz', images=read('train-images-idx3-ubyte', 16).reshape(-1, "
        "28, 28), labels=read('train-labels-idx1-ubyte', 8))",
    ),
)
_SEVEN = ConvertibleFileKind("a 7z archive", ("7z x FILE -obatch", _SUBMIT))
_RAR = ConvertibleFileKind("a rar archive", ("mkdir batch; unrar x FILE batch/", _SUBMIT))
_PACKED_TAR = ConvertibleFileKind(
    "packed by bzip2, xz or zstd", ("mkdir batch; tar xf FILE -C batch", _SUBMIT)
)
_TEACHABLE = ConvertibleFileKind(
    "a Teachable Machine project",
    (
        "mkdir batch; unzip FILE -d batch",
        "or, in Teachable Machine, Download Samples of each class into a folder of its name",
    ),
)
_ON_DISK = ConvertibleFileKind(
    "what save_to_disk of datasets writes",
    (
        "import datasets; found = datasets.load_from_disk('FOLDER')",
        "for part, rows in (found.items() if isinstance(found, dict) else [('train', found)]): "
        "rows.to_parquet(f'batch/{part}.parquet')",
    ),
)
_LMDB = ConvertibleFileKind(
    "an LMDB database",
    (
        "import lmdb, pathlib; rows = lmdb.open('FOLDER', readonly=True, "
        "lock=False).begin().cursor()",
        "for key, value in rows: pathlib.Path('batch', f'{key.hex()}.jpg').write_bytes(value)  # "
        "where values are files; then put them in a folder for each class",
    ),
)
_TFRECORD = ConvertibleFileKind(
    "a TFRecord file",
    (
        "import tensorflow as tf, pathlib; rows = map(tf.train.Example.FromString, "
        "tf.data.TFRecordDataset('FILE').as_numpy_iterator())",
        "for i, row in enumerate(rows): f = row.features.feature; at = pathlib.Path('batch', "
        "str(f['image/class/label'].int64_list.value[0])); at.mkdir(parents=True, exist_ok=True); "
        "(at / f'{i}.jpg').write_bytes(f['image/encoded'].bytes_list.value[0])",
    ),
)
_RAW = ConvertibleFileKind(
    "a camera's raw file",
    (
        "magick mogrify -path batch -format jpg -quality 95 FILE",
        "and put batch/*.jpg where the raw files lie",
    ),
)
_VIDEO = ConvertibleFileKind(
    "a video", ("mkdir -p batch/CLASS", "ffmpeg -i FILE -vf fps=1 batch/CLASS/%05d.jpg")
)
_PDF = ConvertibleFileKind(
    "a PDF", ("mkdir -p batch/CLASS", "pdftoppm -r 150 -jpeg FILE batch/CLASS/page")
)
_PICKLE = ConvertibleFileKind(
    "a pickle, which can run code when it is read",
    (
        "import numpy as np, pickle; data = pickle.load(open('FILE', 'rb'), encoding='latin1')  # "
        "if you trust it",
        "np.savez_compressed('batch.npz', images=data['data'].reshape(-1, 3, 32, 32).transpose(0, "
        "2, 3, 1), labels=data['labels'])  # as CIFAR-10 has them",
    ),
)
_NPY = ConvertibleFileKind(
    "a single array",
    (
        "import numpy as np",
        "np.savez_compressed('batch.npz', images=np.load('FILE'), labels=np.load('LABELS.npy'))",
    ),
)
_HDF5 = ConvertibleFileKind(
    "an HDF5 file",
    (
        "import h5py, numpy as np; data = h5py.File('FILE')",
        "np.savez_compressed('batch.npz', images=data['images'][:], labels=data['labels'][:])",
    ),
)
_MAT = ConvertibleFileKind(
    "a MATLAB file (the lines are for one like SVHN's)",
    (
        "import scipy.io, numpy as np; data = scipy.io.loadmat('FILE')",
        "np.savez_compressed('batch.npz', images=np.moveaxis(data['X'], -1, 0), "
        "labels=data['y'].ravel())",
    ),
)
_BY_ENDING: tuple[tuple[tuple[str, ...], ConvertibleFileKind], ...] = (
    (("idx3-ubyte", "idx1-ubyte", "idx3-ubyte.gz", "idx1-ubyte.gz"), _IDX),
    ((".7z",), _SEVEN),
    ((".rar",), _RAR),
    ((".bz2", ".tbz2", ".xz", ".txz", ".zst"), _PACKED_TAR),
    ((".tm",), _TEACHABLE),
    ((".arrow",), _ON_DISK),
    ((".mdb", ".lmdb"), _LMDB),
    ((".tfrecord", ".tfrecords"), _TFRECORD),
    (RAW_SUFFIXES, _RAW),
    (VIDEO_SUFFIXES, _VIDEO),
    ((".pdf",), _PDF),
    ((".pkl", ".pickle"), _PICKLE),
    ((".npy",), _NPY),
    ((".h5", ".hdf5"), _HDF5),
    ((".mat",), _MAT),
)
_ENDINGS = tuple(ending for endings, _ in _BY_ENDING for ending in endings)
_ZIP = b"PK\x03\x04"
_TFRECORD_NAME = ".tfrecord-"
_BY_FIRST_BYTES: tuple[tuple[bytes, ConvertibleFileKind], ...] = (
    (b"\0\0\x08\x03", _IDX),
    (b"\0\0\x08\x01", _IDX),
    (b"7z\xbc\xaf\x27\x1c", _SEVEN),
    (b"Rar!\x1a\x07", _RAR),
    (b"BZh", _PACKED_TAR),
    (b"\xfd7zXZ\0", _PACKED_TAR),
    (b"\x28\xb5\x2f\xfd", _PACKED_TAR),
    (b"%PDF-", _PDF),
    (b"\x89HDF", _HDF5),
    (b"\x93NUMPY", _NPY),
    (b"MATLAB", _MAT),
    (b"ARROW1", _ON_DISK),
    (b"\x1aE\xdf\xa3", _VIDEO),
    (b"\x80\x04\x95", _PICKLE),
    (b"\x80\x03", _PICKLE),
    (b"\x80\x02", _PICKLE),
)


def find_unsupported_file_kind(name: str = "", first: bytes = b"") -> ConvertibleFileKind | None:
    """Return the kind of an unsupported image file by its name or first bytes, or None.

    `name` is the file's name, `first` its first FIRST_BYTES bytes.
    """
    # A zip can be read, whatever its name.
    if first.startswith(_ZIP):
        return None
    lower = name.lower()
    # Shortcut for most names, of which a batch may have half a million.
    if not first and not lower.endswith(_ENDINGS) and _TFRECORD_NAME not in lower:
        return None
    for mark, kind in _BY_FIRST_BYTES:
        if first.startswith(mark):
            return kind
    # HEIC and AVIF begin like MP4; the ending tells them apart.
    if first[4:8] == b"ftyp" and not lower.endswith((".heic", ".heif", ".avif")):
        return _VIDEO
    for endings, kind in _BY_ENDING:
        if lower.endswith(endings):
            return kind
    return _TFRECORD if _TFRECORD_NAME in lower else None


def group_unsupported_files_by_kind(names: Sequence[str]) -> dict[ConvertibleFileKind, list[int]]:
    """Group the numbers of unsupported files by their kind."""
    files_by_kind: dict[ConvertibleFileKind, list[int]] = {}
    for index, name in enumerate(names):
        kind = find_unsupported_file_kind(name)
        if kind is not None:
            files_by_kind.setdefault(kind, []).append(index)
    return files_by_kind
