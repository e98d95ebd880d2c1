"""What the client says of names, labels and parts is what the service will say."""

import io
import tarfile
from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sources import png, write

from core.errors import PerennialError
from core.ingest import names as service_names
from core.ingest.layout import IGNORED, arrange
from core.ingest.limits import Limits
from perennial.pack import PackError, labels, names, open_batch

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
characters = "abé /\\.:\t\n\u200d\u202e\ufe0f\u00ad\u0915\u094d\u2800☂"
odd = st.sampled_from([*characters, "e\u0301", "..", "\udc80", "👩\u200d💻", "☂\ufe0f"])
texts = st.one_of(
    st.lists(odd, max_size=8).map("".join), st.text(max_size=6), st.text("ab", min_size=95, max_size=105)
)


def accepted(text: str) -> str | None:
    try:
        return service_names.label_of(text, "a test")
    except PerennialError:
        return None


@QUICK
@given(texts)
def test_labels_are_normal_and_refused_as_at_the_service(text: str) -> None:
    label = labels.normal_label(text)
    assert accepted(text) == (None if labels.wrong_label(label) else label)


@QUICK
@given(st.one_of(texts, st.lists(st.sampled_from(["a", "..", ".", "b.png"]), max_size=40).map("/".join)))
@example("a" * 1100)
def test_a_path_that_the_client_lets_pass_the_service_accepts(path: str) -> None:
    if not names.wrong_path(path):
        assert service_names.path_of(path) is not None


folders = st.sampled_from(["train", "Train", "test", "val", "cat", "dog", "train ", "a"])
files = st.sampled_from(["1.png", "2.jpg", "3", "notes.txt", "4.png"])
paths = st.builds(lambda above, name: "/".join([*above, name]), st.lists(folders, max_size=4), files)
trees = st.sets(paths, min_size=1, max_size=9)


@pytest.mark.slow
@settings(QUICK, max_examples=400)
@given(tree=trees)
@example(tree={"data/train/cat/1.png", "data/test/cat/1.png"})
@example(tree={"train/cat/1.png", "val/cat/2.png", "test/cat/1.png"})
@example(tree={"cat/a/1.png", "cat/b/1.png"})
@example(tree={"train/1.png", "val/cat/1.png", "dog/a/1.png"})
def test_a_folder_is_read_as_the_service_reads_its_tar(
    tree: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    at = tmp_path_factory.mktemp("tree")
    for path in tree:
        if not any(other.startswith(f"{path}/") for other in tree):
            write(at / path, b"image")
    try:
        batch = open_batch(at, kind="folder")
    except PackError:
        return
    with tarfile.open(fileobj=io.BytesIO(b"".join(batch.read_chunks()))) as tar:
        sent = tar.getnames()
    layout = arrange(sent, Limits(), lambda _: b"")
    rows = batch._images.rows  # type: ignore[attr-defined]  # what the client believes
    assert IGNORED not in layout.of
    assert [layout.classes[number] for number in layout.of] == [row.label for row in rows]
    assert layout.test == bytes(row.part == "test" for row in rows)
    assert isinstance(layout.of, array)


@pytest.mark.parametrize("label", ["", "a" * 101, "cat\u200d", "line\nbreak"])
def test_labels_that_would_be_refused_are_told_with_an_example(label: str, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"The service would refuse 1 label of a mapping: .* \(of “0000000"):
        open_batch({label: [png("a")], "dog": [png("b")]})


def test_the_first_of_many_bad_labels_are_told() -> None:
    with pytest.raises(PackError, match=r"would refuse 7 labels .*; and 2 more\. Rename them"):
        open_batch({f"cat {number}\u202e": [png("a")] for number in range(7)})


def test_a_class_of_which_nothing_would_be_learned_is_told() -> None:
    with pytest.raises(PackError, match=r"the class “dog” has test images but none to learn"):
        open_batch({"train": {"cat": [b"1"]}, "test": {"dog": [b"2"]}})
