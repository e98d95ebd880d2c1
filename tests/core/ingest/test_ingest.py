"""A whole batch: datasets, split, report, rejections, decoders that die."""

import gzip
import os
import signal
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from hostile_corpus import (
    Entry,
    build_good_arrays,
    build_npz,
    build_raw_zip,
    build_tar,
    build_zip,
    draw_pictures,
    draw_png,
)
from PIL import Image
from test_images import build_huge_png

import core.ingest.ingest as module
from core.errors import ArchiveHostile, LabelsInvalid, Rejected
from core.ingest.dataset import memory_map_image_dataset
from core.ingest.decoding import archive_decoding, pool
from core.ingest.images import decode_image_to_square_pixels
from core.ingest.ingest import (
    IngestedBatch,
    IngestStopped,
    draw_held_out_rows,
    draw_trial_selection_images,
)
from core.ingest.limits import ArchiveLimits
from core.processes import helper_process

Take = Callable[..., IngestedBatch]
ROOT = Path(__file__).resolve().parents[3]


def build_truncated_jpeg() -> bytes:
    data = draw_png(9, (64, 64), file_format="JPEG")
    return data[: len(data) // 2]


def build_mixed_zip(bad: dict[str, bytes], per_class: int = 30) -> bytes:
    return build_zip(draw_pictures(per_class) | bad)


def test_pixels_and_labels_are_those_of_the_files(take: Take) -> None:
    files = draw_pictures(4, top="train/") | {f"test/{k}": v for k, v in draw_pictures(2).items()}
    result = take(build_zip(files))
    images, labels = memory_map_image_dataset(result.train)
    expected = [v for k, v in files.items() if k.startswith("train")]
    assert np.array_equal(
        images, np.stack([decode_image_to_square_pixels(data, 8, 3, 10**6) for data in expected])
    )
    assert labels.tolist() == [0] * 4 + [1] * 4
    assert result.class_list == ["cat", "dog"]
    assert result.classes == {"cat": 6, "dog": 6}
    assert (result.n_train, result.n_held_out) == (8, 4)
    assert sorted(p.name for p in result.train.parent.iterdir()) == [
        "held_out.safetensors",
        "traces.safetensors",
        "train.safetensors",
    ]


def test_the_result_is_the_same_with_any_number_of_decoders_and_in_any_container(
    take: Take, tmp_path: Path
) -> None:
    files = draw_pictures(20)
    stored = build_zip(files)
    forms = [
        stored,
        stored,
        build_zip(files, zipfile.ZIP_DEFLATED),
        build_tar(files),
        gzip.compress(build_tar(files)),
    ]
    seen = set()
    for i, form in enumerate(forms):
        result = take(form, processes=1 + i % 3)
        seen.add((result.train.read_bytes(), result.held_out.read_bytes()))
    assert len(seen) == 1


def test_fifteen_percent_of_each_class_are_held_out(take: Take) -> None:
    files = (
        draw_pictures(40)
        | {f"rare/{i}.png": draw_png(900 + i) for i in range(3)}
        | {"single/0.png": draw_png(999)}
    )
    result = take(build_zip(files))
    labels = memory_map_image_dataset(result.held_out)[1]
    assert np.bincount(labels, minlength=4).tolist() == [6, 6, 1, 0]
    assert result.n_train == 84 - 13
    assert any("single" in text for text in result.warnings)


def test_the_split_depends_on_seed_and_images_only(take: Take) -> None:
    data = build_mixed_zip({})
    first, other = (take(data, seed=s).held_out.read_bytes() for s in (0, 1))
    assert first != other
    assert take(data, seed=0).held_out.read_bytes() == first


def test_every_class_keeps_a_training_image() -> None:
    rng = np.random.default_rng(0)
    for share in (0.01, 0.15, 0.5, 0.99):
        labels = rng.integers(0, 9, 60)
        chosen = draw_held_out_rows(
            labels, rng.integers(0, 256, (60, 16), dtype=np.uint8), share, 3
        )
        counts = np.bincount(labels, minlength=9)
        held = np.bincount(labels[chosen], minlength=9)
        assert ((held < counts) | (counts == 0)).all()
        assert ((held >= 1) | (counts < 2)).all()
        assert (np.abs(held - share * counts) <= 1).all()


def test_bad_images_among_good_ones_are_rows_of_the_report(take: Take) -> None:
    files = {
        "cat/huge.png": build_huge_png(30_000, 30_000),
        "dog/cut.jpg": build_truncated_jpeg(),
        "dog/empty.png": b"",
    }
    result = take(build_mixed_zip(files), size=32)
    assert {row["path"]: row["reason"] for row in result.report["rejected"]} == {
        "cat/huge.png": "30000×30000 pixels, more than 50000000",
        "dog/cut.jpg": "damaged or cut off",
        "dog/empty.png": "the file is empty",
    }
    assert result.report["rejected_count"] == 3
    assert result.n_train + result.n_held_out == 60
    assert result.classes == {"cat": 30, "dog": 30}


def test_more_than_five_percent_bad_files_reject_the_batch(take: Take) -> None:
    take(build_mixed_zip({f"cat/b{i}.png": b"text" for i in range(2)}, per_class=19))  # 2 of 40
    with pytest.raises(Rejected, match="3 of 41 images") as caught:
        take(build_mixed_zip({f"cat/b{i}.png": b"text" for i in range(3)}, per_class=19))
    report = caught.value.extra["report"]
    assert report["rejected_count"] == 3
    assert report["rejected"][0] == {
        "path": "cat/b0.png",
        "reason": "not a PNG, JPEG, WebP, GIF, HEIC, AVIF, BMP or TIFF image",
    }


def test_a_class_without_a_usable_image_rejects_the_batch(take: Take, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="owl"):
        take(build_mixed_zip({"owl/0.png": b"text"}))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_wrong_checksum_is_a_row(take: Take) -> None:
    entries = [Entry(k.encode(), v) for k, v in draw_pictures(30).items()]
    result = take(build_raw_zip([*entries, Entry(b"cat/x.png", draw_png(3), crc=1)]))
    assert result.report["rejected"] == [
        {"path": "cat/x.png", "reason": "its checksum does not match"}
    ]


def test_a_size_that_lies_beyond_the_trial_is_found_while_decoding(
    take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.ingest.readers.zip._TRIAL_BYTES", 0)
    data = b"".join(draw_png(i, (40, 40)) for i in range(2))
    with pytest.raises(ArchiveHostile, match="cat/lie"):
        take(
            build_raw_zip(
                [
                    Entry(b"cat/0.png", draw_png()),
                    Entry(b"cat/lie.png", data, method=8, size=len(data) - 50),
                ]
            )
        )


def test_duplicates_and_frames_are_counted(take: Take, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in ("red", "blue")]
    frames[0].save(tmp_path / "f.png", save_all=True, append_images=frames[1:])
    same = draw_png(77)
    files = {
        "cat/s.png": same,
        "dog/s.png": same,
        "cat/t.png": same,
        "cat/f.png": (tmp_path / "f.png").read_bytes(),
    }
    report = take(build_mixed_zip(files)).report
    assert report["duplicates"] == 2
    assert report["notes"] == ["1 image has several frames; the first was taken"]


@pytest.mark.parametrize(
    ("sides", "small"), [((47, 47), 4), ((48, 20), 0), ((20, 48), 0), ((1, 47), 4)]
)
def test_images_whose_longer_side_is_short_are_counted(
    take: Take, sides: tuple[int, int], small: int
) -> None:
    files = {f"train/cat/{n}.png": draw_png(n, sides) for n in range(4)}
    assert take(build_zip(files)).report["small"] == small


def test_rows_of_an_npz_are_small_where_their_array_is(take: Take) -> None:
    assert take(build_npz(build_good_arrays(30))).report["small"] == 30


def test_files_that_are_no_images_by_their_name_are_ignored_with_their_reason(take: Take) -> None:
    notes = {f"cat/{i}.txt": b"words" for i in range(8)} | {
        "notes/a.md": b"words",
        "dog/Thumbs.db": b"x",
    }
    result = take(build_mixed_zip(notes))
    assert result.report["rejected_count"] == 0 and result.report["ignored"] == 10
    reasons = {row["path"]: row["reason"] for row in result.report["ignored_files"]}
    assert reasons["cat/0.txt"] == reasons["notes/a.md"] == "not an image, by its name"
    assert result.report["ignored_files"][-1] == {
        "path": "dog/Thumbs.db",
        "reason": "hidden, or left behind by a file manager",
    }
    assert result.report["notes"] == ["the folder “notes” has no images and was ignored"]
    assert result.classes == {"cat": 30, "dog": 30}


def test_ignored_files_are_listed_up_to_a_hundred_and_counted_whole(take: Take) -> None:
    report = take(build_mixed_zip({f"cat/{i}.json": b"{}" for i in range(150)})).report
    assert (len(report["ignored_files"]), report["ignored"]) == (100, 150)


def test_a_heic_file_is_a_row_that_says_what_to_do(take: Take) -> None:
    data = (24).to_bytes(4) + b"ftypheic" + bytes(4) + b"mif1heic" + bytes(90)
    row = take(build_mixed_zip({"cat/photo.HEIC": data})).report["rejected"][0]
    assert row["path"] == "cat/photo.HEIC" and (
        "a HEIC image" in row["reason"] or "damaged" in row["reason"]
    )


def test_equal_images_are_named_by_path(take: Take) -> None:
    report = take(build_mixed_zip({"cat/again.png": draw_pictures(30)["cat/3.png"]})).report
    assert report["duplicates"] == 1 and report["conflicts"] == []
    assert report["duplicate_paths"] == [{"path": "cat/again.png", "same_as": "cat/3.png"}]


def test_contradicting_labels_are_named_and_warned_about(take: Take) -> None:
    result = take(build_mixed_zip({"cat/s.png": draw_png(77), "dog/s.png": draw_png(77)}))
    (conflict,) = result.report["conflicts"]
    assert conflict["paths"] == ["cat/s.png", "dog/s.png"] and conflict["labels"] == ["cat", "dog"]
    assert result.report["conflicts_count"] == 1
    assert result.warnings == [
        "The same image has two classes: “cat/s.png” is “cat” and “dog/s.png” is “dog”. "
        "What contradicts itself cannot be learned."
    ]


def test_contradicting_rows_of_an_npz_are_named(take: Take) -> None:
    arrays = build_good_arrays()
    arrays["images"][1] = arrays["images"][0]  # type: ignore[index]
    report = take(build_npz(arrays)).report
    (conflict,) = report["conflicts"]
    assert conflict["paths"] == ["images[0]", "images[1]"] and conflict["labels"] == ["0", "1"]


def test_dropping_keeps_the_first_of_equal_images_of_a_class(take: Take) -> None:
    extra = {
        "cat/a.png": draw_png(77),
        "cat/b.png": draw_png(77),
        "cat/c.png": draw_png(77),
        "dog/a.png": draw_png(77),
    }
    kept, dropped = take(build_mixed_zip(extra)), take(build_mixed_zip(extra), duplicates="drop")
    assert (kept.report["duplicates_policy"], kept.report["duplicates_dropped"]) == ("keep", 0)
    assert (dropped.report["duplicates_policy"], dropped.report["duplicates_dropped"]) == (
        "drop",
        2,
    )
    assert (kept.classes, dropped.classes) == ({"cat": 33, "dog": 31}, {"cat": 31, "dog": 31})
    assert dropped.n_train + dropped.n_held_out == 62
    assert kept.report["duplicates"] == dropped.report["duplicates"] == 3


def test_dropping_leaves_an_image_in_both_parts_and_warns_of_it(take: Take) -> None:
    files = {
        "train/cat/a.png": draw_png(1),
        "train/cat/b.png": draw_png(1),
        "train/cat/c.png": draw_png(2),
    }
    result = take(
        build_zip(files | {"test/cat/d.png": draw_png(1), "test/cat/e.png": draw_png(1)}),
        duplicates="drop",
    )
    assert (result.n_train, result.n_held_out, result.report["duplicates_dropped"]) == (2, 1, 2)
    assert "1 held-out image is in the training part too" in result.warnings[0]


def test_the_report_says_that_images_were_looked_at(take: Take) -> None:
    assert take(build_mixed_zip({})).report["checked"] == "images"


def test_held_out_images_that_are_trained_on_are_warned_about(take: Take) -> None:
    result = take(build_zip(draw_pictures(3, top="train/") | draw_pictures(2, top="test/")))
    assert result.warnings == [
        "4 held-out images are in the training part too: accuracy there is flattered."
    ]


def test_allowed_classes_number_the_labels(take: Take) -> None:
    result = take(build_mixed_zip({}), allowed_classes=["zebra", "dog", "cat"])
    assert sorted(set(memory_map_image_dataset(result.train)[1].tolist())) == [1, 2]
    assert result.class_list == ["zebra", "dog", "cat"]
    assert result.classes == {"dog": 30, "cat": 30}
    with pytest.raises(LabelsInvalid, match="does not know “dog”; its classes are fixed: “cat”"):
        take(build_mixed_zip({}), allowed_classes=["cat"])


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(("size", "channels"), [(8, 3), (6, 3), (8, 1)])
def test_npz_rows_are_read_in_order(take: Take, method: int, size: int, channels: int) -> None:
    arrays = build_good_arrays(300)
    arrays |= {
        "test_images": arrays["images"][::-1][:40].copy(),
        "test_labels": arrays["labels"][:40],
    }  # type: ignore[index]
    result = take(build_npz(arrays, method), size=size, channels=channels, processes=2)
    for path, name in ((result.train, "images"), (result.held_out, "test_images")):
        files = [np.asarray(image) for image in arrays[name]]
        expected = np.stack([convert_with_module(image, size, channels) for image in files])
        assert np.array_equal(memory_map_image_dataset(path)[0], expected)
    assert memory_map_image_dataset(result.held_out)[1].tolist() == [i % 2 for i in range(40)]


def convert_with_module(image: np.ndarray, size: int, channels: int) -> np.ndarray:
    from core.ingest.images import convert_to_square_array

    return convert_to_square_array(image, size, channels)


def test_progress_rises_to_the_total_and_stop_ends_it(take: Take, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    take(build_mixed_zip({}, 200), progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (400, 400) and calls == sorted(calls)
    with pytest.raises(IngestStopped):
        take(build_mixed_zip({}), stop=lambda: True)
    assert list((tmp_path / "out").iterdir()) == []


FAKE_CORE = """
import os, signal, time
__path__ = [{path!r}]
from core.ingest import images
real = images.decode_square_image
def poisoned(data, *rest):
    if data.endswith(b"KILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    if data.endswith(b"HANG"):
        time.sleep(1000)
    if data.endswith(b"SPIN"):
        while True: pass
    if data.endswith(b"SLOW"):
        before = time.process_time()
        while time.process_time() < before + 0.1: pass
    if data.endswith(b"SAYS"):
        os.write(2, bytes(1 << 20))
    if data.endswith(b"EAT"):
        kept = bytearray(64 << 30)
    return real(data, *rest)
images.decode_square_image = poisoned
"""


@pytest.fixture
def poisonable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders that die of files which end in KILL, HANG, SPIN or EAT; SLOW takes 0.1 s, SAYS
    prints.
    """
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text(FAKE_CORE.format(path=str(ROOT / "core")))
    monkeypatch.setattr(helper_process, "ROOT", tmp_path)
    monkeypatch.setattr(module, "DecoderPool", partial(pool.DecoderPool, image_s=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("end", [b"KILL", b"HANG"])
def test_an_image_that_ends_its_decoder_is_one_row(
    take: Take, poisonable: None, end: bytes
) -> None:
    files = draw_pictures(30)
    poison = {"cat/poison.png": draw_png(5) + end}
    names = list(files)
    middle = {k: files[k] for k in names[:20]} | poison | {k: files[k] for k in names[20:]}
    clean = take(build_zip(files))
    expected = clean.train.read_bytes()
    result = take(build_zip(middle))
    assert result.report["rejected"] == [{"path": "cat/poison.png", "reason": pool.DEADLY}]
    assert result.train.read_bytes() == expected


@pytest.mark.slow
def test_an_image_that_spends_the_cpu_time_is_one_row(
    take: Take, poisonable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DecoderPool", pool.DecoderPool)
    monkeypatch.setattr(archive_decoding, "CPU_S", 1)
    result = take(build_mixed_zip({"cat/poison.png": draw_png(5) + b"SPIN"}))
    assert result.report["rejected"] == [{"path": "cat/poison.png", "reason": pool.DEADLY}]


def test_an_image_that_takes_too_much_memory_is_one_row(take: Take, poisonable: None) -> None:
    result = take(build_mixed_zip({"cat/poison.png": draw_png(5) + b"EAT"}))
    assert result.report["rejected"] == [
        {"path": "cat/poison.png", "reason": "decoding takes too much memory"}
    ]


def test_many_images_that_end_their_decoder_reject_the_batch(take: Take, poisonable: None) -> None:
    with pytest.raises(Rejected, match="crashed the decoder") as caught:
        take(build_mixed_zip({f"cat/p{i}.png": draw_png(i) + b"KILL" for i in range(8)}))
    assert caught.value.extra["report"]["rejected"][0]["path"] == "cat/p0.png"


@pytest.mark.slow
def test_images_that_together_take_far_too_long_reject_the_batch(
    take: Take, poisonable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "BATCH_CPU_S", 0.0)
    monkeypatch.setattr(pool, "IMAGE_CPU_S", 0.005)
    with pytest.raises(Rejected, match="CPU time") as caught:
        take(build_mixed_zip({f"cat/p{i}.png": draw_png(i) + b"SLOW" for i in range(100)}))
    assert "took too long" in caught.value.extra["report"]["notes"][-1]


def test_what_decoders_of_images_print_is_kept_nowhere(
    take: Take, poisonable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = []
    close = pool.DecoderPool.kill_decoders

    def record_size_and_close(self: pool.DecoderPool) -> None:
        printed.append((self.folder / "decoder-errors").stat().st_size)
        close(self)

    monkeypatch.setattr(pool.DecoderPool, "kill_decoders", record_size_and_close)
    take(build_mixed_zip({"cat/loud.png": draw_png(5) + b"SAYS"}))
    assert printed == [0]


def test_a_decoder_killed_from_outside_costs_no_image(take: Take) -> None:
    data = build_mixed_zip({}, 600)
    expected = take(data).train.read_bytes()
    killed = []

    def kill_once(done: int, total: int) -> None:
        if not killed:
            for child in psutil.Process().children():
                if "core.ingest.decoding.decoder" in " ".join(child.cmdline()):
                    killed.append(child.pid)
                    os.kill(child.pid, signal.SIGKILL)

    result = take(data, progress=kill_once)
    assert killed
    assert result.report["rejected"] == []
    assert result.train.read_bytes() == expected


def test_no_decoder_outlives_the_ingest(take: Take) -> None:
    take(build_mixed_zip({}))
    left = [
        p
        for p in psutil.Process().children()
        if "core.ingest.decoding.decoder" in " ".join(p.cmdline())
    ]
    assert left == []


def test_the_decoder_imports_neither_torch_nor_settings() -> None:
    import subprocess

    code = (
        "import sys, core.ingest.decoding.decoder; print({'torch', 'pydantic', 'numpy', 'sqlalchemy'} & "
        "set(sys.modules))"
    )
    assert (
        subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).strip()
        == "set()"
    )


def test_secrets_do_not_reach_the_decoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PERENNIAL_STORE_SECRET_KEY", "hush")
    workers = pool.DecoderPool(tmp_path, 1)
    try:
        workers.start_decoder()
        child = next(
            p
            for p in psutil.Process().children()
            if "core.ingest.decoding.decoder" in " ".join(p.cmdline())
        )
        assert "PERENNIAL_STORE_SECRET_KEY" not in child.environ()
    finally:
        workers.kill_decoders()


def test_an_image_file_beyond_the_size_limit_is_a_row(take: Take) -> None:
    limits = ArchiveLimits(image_pixels=64)  # 1 MiB and 512 bytes
    result = take(
        build_mixed_zip({"cat/large.png": draw_png() + os.urandom(1_100_000)}), limits=limits
    )
    assert "bytes, more than" in result.report["rejected"][0]["reason"]


def test_selection_images_are_a_twentieth_of_each_large_class_and_none_of_them_is_learned() -> None:
    labels = np.repeat([0, 1, 2], [40, 8, 7])
    digests = np.random.default_rng(0).integers(0, 256, (55, 16), dtype=np.uint8)
    # Equal images are set aside together.
    digests[1:6] = digests[0]
    candidates = np.ones(55, np.bool_)
    candidates[39] = False  # held out
    chosen = draw_trial_selection_images(labels, digests, candidates, 0.05, 0)
    counts = np.bincount(labels[chosen], minlength=3)
    assert not chosen[39]
    assert counts[1:].tolist() == [1, 0]
    assert counts[0] in (2, 7), "two images, or one and the six equal ones"
    aside = {digest.tobytes() for digest in digests[chosen]}
    assert not aside & {digest.tobytes() for digest in digests[~chosen & candidates]}
    again = draw_trial_selection_images(labels, digests, candidates, 0.05, 0)
    assert (again == chosen).all()
    assert not draw_trial_selection_images(labels, digests, candidates, 0.0, 0).any()
