"""Merging of several safetensors files into one, in constant memory and without torch.

Only the header is computed. The parts are hashed while they are copied, so that nothing is made
from a damaged one.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from core.errors import BaseInvalid, StoredObjectDamaged
from core.files.safetensors_header import (
    COPY_BYTES,
    DTYPE_BYTES,
    TensorHeader,
    read_safetensors_header,
)

_RANK = {name: rank for rank, name in enumerate(DTYPE_BYTES)}


class MergedSafetensorsFile:
    """Several safetensors files merged into one, with tensors in the order of the format's own
    writer.

    Args:
        parts: part files with their sha256, each with a function from a tensor's name to its name
            in the merged file, or None to leave the tensor out. A merged name may occur only once.

    Raises:
        StoredObjectDamaged: a part is not a sound safetensors file, or two tensors would have the same
            name.
    """

    def __init__(self, parts: Sequence[tuple[Path, str, Callable[[str], str | None]]]) -> None:
        self._sources: dict[str, tuple[Path, TensorHeader]] = {}
        self._digests = {path: sha256 for path, sha256, _ in parts}
        for path, _, rename in parts:
            for tensor in _read_part_tensor_headers(path):
                name = rename(tensor.name)
                if name in self._sources:
                    raise _build_version_parts_mismatch_error(f"tensor {name!r} is in two parts")
                if name is not None:
                    self._sources[name] = (path, tensor)
        self._order = sorted(
            self._sources, key=lambda name: (-_RANK[self._sources[name][1].dtype], name)
        )
        entries = {}
        position = 0
        for name in self._order:
            tensor = self._sources[name][1]
            length = tensor.end - tensor.begin
            entries[name] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": [position, position + length],
            }
            position += length
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        # The format's own writer aligns the data to 8 bytes with blanks.
        text += b" " * (-len(text) % 8)
        self.header = struct.pack("<Q", len(text)) + text
        self.size = len(self.header) + position
        """Bytes of the whole file."""

    @property
    def tensor_names(self) -> list[str]:
        """Names of the merged tensors in the order of the file."""
        return list(self._order)

    def read_chunks(self) -> Iterator[bytes]:
        """Yield the merged file's bytes in pieces of at most 1 MiB; the part files are hashed as
        they are read.

        Raises:
            DamagedPartFileError: a part has another digest. This is raised in place of the end, and
                the bytes yielded before must be discarded.
        """
        yield self.header
        with ExitStack() as stack:
            files = {path: stack.enter_context(_HashingFileReader(path)) for path in self._digests}
            for name in self._order:
                path, tensor = self._sources[name]
                yield from files[path].read_byte_range(tensor.begin, tensor.end)
            for path, file in files.items():
                if file.compute_file_digest() != self._digests[path]:
                    raise DamagedPartFileError(path)


def _read_part_tensor_headers(path: Path) -> list[TensorHeader]:
    try:
        return read_safetensors_header(path)
    except BaseInvalid as error:
        raise _build_version_parts_mismatch_error(str(error)) from error


def _build_version_parts_mismatch_error(why: str) -> StoredObjectDamaged:
    return StoredObjectDamaged(f"The version's parts do not fit together: {why}")


class DamagedPartFileError(StoredObjectDamaged):
    """Error: a part file's bytes do not match its digest, or are incomplete."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"The file {path.name} is damaged: its bytes have another digest.")
        self.path = path


class _HashingFileReader:
    """Reader that computes a file's SHA-256 while its pieces are read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Unbuffered, because pread goes past any buffer.
        self._file = path.open("rb", buffering=0)
        self._digest = hashlib.sha256()
        self._hashed = 0  # bytes from the start of the file
        self._in_order = True

    def __enter__(self) -> "_HashingFileReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read_byte_range(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield a file's bytes from `begin` to `end` in pieces of at most 1 MiB, and hash them.

        Raises:
            DamagedPartFileError: the file ends before `end`.
        """
        self._in_order = self._in_order and begin >= self._hashed
        if self._in_order:
            for _ in self._read_pieces(self._hashed, begin):
                pass  # bytes that are not copied are hashed, too
        yield from self._read_pieces(begin, end)

    def compute_file_digest(self) -> str:
        """Return the SHA-256 of the whole file, reading what was not read in order.

        The rest of the file is read first, or the whole file again if pieces were read out of
        order.
        """
        if not self._in_order:
            # A digest needs the bytes in order, so it starts again from the beginning.
            self._digest, self._hashed, self._in_order = hashlib.sha256(), 0, True
        for _ in self._read_pieces(self._hashed, os.fstat(self._file.fileno()).st_size):
            pass
        return self._digest.hexdigest()

    def _read_pieces(self, begin: int, end: int) -> Iterator[bytes]:
        while begin < end:
            piece = os.pread(self._file.fileno(), min(end - begin, COPY_BYTES), begin)
            if not piece:
                raise DamagedPartFileError(self._path)
            begin += len(piece)
            if self._in_order:
                self._digest.update(piece)
                self._hashed = begin
            yield piece
