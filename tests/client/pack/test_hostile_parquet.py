"""Hostile Parquet files: whatever they hold, each is read or refused with its own message."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources import write_parquet

from perennial.pack.errors import PackError
from perennial.pack.sources.parquet import ParquetImages

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
ROW = {"bytes": b"\x89PNG", "path": "a.png"}


def write_parquet_table(
    at: Path, columns: dict[str, Any], features: Any = None, **options: Any
) -> Path:
    table = pa.table(columns)
    if features is not None:
        text = (
            features if isinstance(features, str) else json.dumps({"info": {"features": features}})
        )
        table = table.replace_schema_metadata({"huggingface": text})
    pq.write_table(table, at / "some.parquet", **options)
    return at / "some.parquet"


def count_readable_images(path: Path) -> int:
    """Read a whole file and return the number of images in it."""
    images = ParquetImages(path)
    images.collect_image_byte_sizes()
    return sum(1 for _ in images.iterate_image_contents(0))


def build_image_column(bytes_: Any, data: Any, path: Any, name: Any) -> Any:
    """Build a column of one image with these types."""
    return pa.array([{"bytes": data, "path": name}], pa.struct([("bytes", bytes_), ("path", path)]))


GOOD = {"image": pa.array([ROW], IMAGE), "label": pa.array([0])}
NAMED = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a"]}}
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "metadata 100,000 deep": (GOOD, "[" * 100_000),
    "features are a list": (GOOD, [1, 2]),
    "features are text": (GOOD, "text"),
    "names are a number": (GOOD, {**NAMED, "label": {"_type": "ClassLabel", "names": 5}}),
    "names are numbers": (GOOD, {**NAMED, "label": {"_type": "ClassLabel", "names": [7]}}),
    "names are nothing": (GOOD, {**NAMED, "label": {"_type": "ClassLabel", "names": []}}),
    "labels are lists": ({**GOOD, "label": pa.array([[1]])}, None),
    "labels are "
    "maps": ({**GOOD, "label": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}, None),
    "paths are bytes": ({**GOOD, "image": build_image_column(pa.binary(), b"x", pa.binary(), b"y")}, None),
    "paths are "
    "lists": ({**GOOD, "image": build_image_column(pa.binary(), b"x", pa.list_(pa.string()), ["y"])}, None),
    "bytes are text": ({**GOOD, "image": build_image_column(pa.string(), "x", pa.string(), "y")}, None),
    "a label of 5,000 digits": ({**GOOD, "label": pa.array(["9" * 5000])}, NAMED),
    "no image in a row": ({**GOOD, "image": pa.array([None], IMAGE)}, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_file_of_odd_types_is_read_or_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    columns, features = CASES[case]
    try:
        assert count_readable_images(write_parquet_table(tmp_path, columns, features)) == 1
    except PackError as error:
        assert str(error).isprintable() and len(str(error)) < 500


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays(
        [pa.array([ROW], IMAGE), pa.array([1]), pa.array([2])], ["image", "label", "label"]
    )
    pq.write_table(table, tmp_path / "some.parquet")
    with pytest.raises(PackError):
        count_readable_images(tmp_path / "some.parquet")


@pytest.mark.slow
def test_a_column_that_grows_beyond_a_hundredfold_is_refused_before_it_is_unpacked(
    tmp_path: Path,
) -> None:
    bomb = {
        "image": pa.array([{"bytes": bytes(100 << 20), "path": "a.png"}], IMAGE),
        "label": pa.array([0]),
    }
    path = write_parquet_table(tmp_path, bomb, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(PackError, match=r"grows .* times when it is unpacked"):
        count_readable_images(path)


FUZZ = """
import random, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:4]
from test_hostile_parquet import count_readable_images
from perennial.pack.errors import PackError
folder, begin, count = Path(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
good = (folder / "good.parquet").read_bytes()
for number in range(begin, begin + count):
    print(number, flush=True)
    draw = random.Random(number)
    data = bytearray(good)
    for _ in range(draw.choice((1, 2, 8, 64))):
        at = draw.randrange(len(data)) if draw.random() < 0.5 else len(data) - 1 - draw.randrange(min(1200, len(data)))
        match draw.randrange(4):
            case 0: data[at] ^= 1 << draw.randrange(8)
            case 1: data[at] = draw.choice((0, 0x7F, 0x80, 0xFF))
            case 2: del data[at : at + draw.randrange(1, 40)]
            case 3: data[at:at] = draw.randbytes(draw.randrange(1, 12))
        if len(data) < 16:
            break
    (folder / "bad.parquet").write_bytes(data)
    try:
        count_readable_images(folder / "bad.parquet")
        print("read", flush=True)
    except PackError:
        print("refused", flush=True)
"""


def count_fuzz_outcomes(folder: Path, count: int) -> Counter[str]:
    """Count the outcomes of reading `count` damaged files in a process limited to 2 GB."""
    here, root = Path(__file__).parent, Path(__file__).parents[3]
    good = next((write_parquet(folder) / "data").glob("train*"))
    good.rename(folder / "good.parquet")
    found: Counter[str] = Counter()
    begin = 0
    while begin < count:
        arguments = [
            str(here),
            str(root),
            str(root / "client"),
            str(folder),
            str(begin),
            str(count - begin),
        ]
        limited = f'ulimit -v {6 << 20}; exec {sys.executable} -c "$0" "$@"'
        done = subprocess.run(
            ["bash", "-c", limited, FUZZ, *arguments], capture_output=True, text=True
        )
        words = done.stdout.split()
        numbers = [int(word) for word in words if word.isdigit()]
        found.update(word for word in words if not word.isdigit())
        if done.returncode == 0:
            break
        found[f"died {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"] += 1
        begin = numbers[-1] + 1
    return found


@pytest.mark.slow
def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    found = count_fuzz_outcomes(tmp_path, 300)
    assert set(found) <= {"read", "refused"} and found["refused"] > 100, found


@pytest.mark.campaign
def test_ten_thousand_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    found = count_fuzz_outcomes(tmp_path, 10_000)
    assert set(found) <= {"read", "refused"}, found
