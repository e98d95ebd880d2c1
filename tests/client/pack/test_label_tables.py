"""Label tables of the client: folders are read as the service reads their archive, lists by paths
from their folder.
"""

import io
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from sources import make_noise_png, write_file

from perennial.pack import PackError, open_batch
from perennial.pack.name_patterns import extract_labels_by_pattern_within_time

sys.path.append(str(Path(__file__).parents[2] / "core/ingest"))

from tables_samples import FILES, IMAGES, LABELS, SAMPLES

from core.ingest.inspect import summarise_archive_and_digest_content
from core.ingest.limits import ArchiveLimits


def write_files(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        write_file(folder / name, data or make_noise_png(name))
    return folder


@pytest.mark.parametrize("source", SAMPLES)
def test_a_folder_is_sent_as_the_labels_that_its_table_says(source: str, tmp_path: Path) -> None:
    files, labels, options = SAMPLES[source]
    given = {name.removesuffix("_column"): value for name, value in options.items()}
    batch = open_batch(write_files(tmp_path / "in", files), **given)
    sent = b"".join(batch.read_chunks())
    (tmp_path / "sent.tar").write_bytes(sent)
    found = summarise_archive_and_digest_content(tmp_path / "sent.tar", "tar", ArchiveLimits())
    assert found.classes == dict(Counter(labels.values()))
    with tarfile.open(fileobj=io.BytesIO(sent)) as tar:
        assert set(labels) <= set(tar.getnames())


@pytest.mark.parametrize(
    "source", ["Label Studio CSV", "Label Studio JSON", "JSONL", "SageMaker manifest", "FiftyOne"]
)
def test_a_table_by_itself_finds_images_below_its_folder(source: str, tmp_path: Path) -> None:
    files, labels, _ = SAMPLES[source]
    folder = write_files(tmp_path, files)
    (table,) = set(files) - set(FILES)
    assert f"{len(labels)} images of 2 classes" in open_batch(folder / table).describe()


def test_entries_that_are_left_out_are_said_with_their_lines(tmp_path: Path) -> None:
    rows = "".join(f"{image},{label}\n" for image, label in LABELS.items())
    write_files(tmp_path, {**FILES, "t.csv": f"file,label\n{rows}none.jpg,cat\nalso.jpg,cat\n"})
    with pytest.raises(PackError, match=r"2 of 10 entries .* -o max_bad=0\.2"):
        open_batch(tmp_path / "t.csv")
    for source in (tmp_path / "t.csv", tmp_path):
        said = " ".join(open_batch(source, max_bad="20%").warnings)
        assert "2 entries left out: line 10 of t.csv: names “none.jpg”" in said


def test_a_table_finds_no_image_out_of_its_folder(tmp_path: Path) -> None:
    write_file(tmp_path / "secret.png", make_noise_png("secret"))
    write_file(tmp_path / "in/1.png", make_noise_png("1"))
    write_file(tmp_path / "in/t.csv", f"file,label\n1.png,a\n{tmp_path}/secret.png,b\n".encode())
    batch = open_batch(tmp_path / "in/t.csv")
    assert make_noise_png("secret") not in b"".join(batch.read_chunks())
    assert "lies out of the folder" in batch.warnings[0]


def test_a_regular_expression_takes_labels_from_names(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = dict.fromkeys(("a/1 cat.png", "a/2 cat.png", "a/3 dog.png"), "")
    batch = open_batch(write_files(tmp_path, files), names_pattern=r"\d (?P<label>\w+)\.png$")
    assert "“cat” 2, “dog” 1" in batch.describe()


@pytest.mark.parametrize(
    ("pattern", "limit_s", "error"),
    [
        ("(a+)+$", 0.5, "took more than 0.5 s for 1 names. Write it without repetitions"),
        ("(", 60, "neither a pattern .* nor a regular expression"),
        ("a", 60, "it has no group"),
        ("(a)" * 67, 60, "names_pattern has 201 characters; 200 are allowed"),
    ],
)
def test_a_regular_expression_that_never_ends_or_is_none_is_said(
    pattern: str, limit_s: float, error: str
) -> None:
    with pytest.raises(PackError, match=error):
        extract_labels_by_pattern_within_time(pattern, ["a" * 250 + "b"], limit_s=limit_s)


def test_names_beyond_the_bound_are_not_matched() -> None:
    assert extract_labels_by_pattern_within_time("(a+)", ["a" * 255, "a" * 256, IMAGES[1]]) == [
        "a" * 255,
        None,
        "a",
    ]
