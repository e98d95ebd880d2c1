"""Dataset files made of idx files, archives and class folders."""

import io
import shutil
import zipfile

import numpy as np
import pytest
from experiments import write_idx
from PIL import Image

from bench.experiment.data import ExperimentDatasetCache, read_idx_array
from bench.experiment.plan import PlanError, PlannedImages
from core.ingest.dataset import memory_map_image_dataset


def write_idx_folder(folder, images, labels, kind=8):
    """Write a folder with the same images as training part and, twice, as test part."""
    folder.mkdir(exist_ok=True)
    for part, times in (("train", 1), ("t10k", 2)):
        write_idx(folder / f"{part}-images-idx3-ubyte", np.tile(images, (times, 1, 1)))
        several = np.tile(labels, (times,) + (1,) * (labels.ndim - 1))
        write_idx(folder / f"{part}-labels-idx1-ubyte", several, kind)


def draw_numbered_images(n):
    """Return n images of 4 × 4 pixels, in which each pixel is the image's number."""
    return np.repeat(np.arange(n, dtype=np.uint8), 16).reshape(n, 4, 4)


def encode_png(value):
    out = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def files(tmp_path):
    return ExperimentDatasetCache(tmp_path, tmp_path / "cache")


def test_labels_index_the_classes_asked_for(files, tmp_path):
    write_idx_folder(
        tmp_path / "a", draw_numbered_images(6), np.array([0, 1, 2, 0, 1, 2], np.uint8)
    )
    assert files.decode_experiment_data_set(PlannedImages(path="a")).names == ("0", "1", "2")
    pixels, labels = memory_map_image_dataset(
        files.make_dataset_file_of_classes(PlannedImages(path="a"), [2, 0], "train")
    )
    assert labels.tolist() == [0, 0, 1, 1]
    assert pixels[:, 0, 0, 0].tolist() == [2, 5, 0, 3]
    assert (
        len(
            memory_map_image_dataset(
                files.make_dataset_file_of_classes(PlannedImages(path="a"), [2, 0], "test")
            )[1]
        )
        == 8
    )


def test_padding_adds_zeros_on_every_side(files, tmp_path):
    write_idx_folder(tmp_path / "a", draw_numbered_images(2) + 9, np.array([0, 1], np.uint8))
    images = PlannedImages(path="a", pad=2)
    assert files.get_image_shape(images) == {"size": 8, "channels": 1}
    pixels, _ = memory_map_image_dataset(
        files.make_dataset_file_of_classes(images, [0, 1], "train")
    )
    assert pixels.shape == (2, 8, 8, 1)
    assert (pixels[1, 2:6, 2:6] == 10).all()
    assert pixels[1].sum() == 16 * 10


def test_a_limit_draws_the_same_images_of_each_class_every_time(tmp_path):
    write_idx_folder(tmp_path / "a", draw_numbered_images(40), np.arange(40, dtype=np.uint8) % 2)
    drawn = []
    for cache in ("one", "two"):
        files = ExperimentDatasetCache(tmp_path, tmp_path / cache)
        images = PlannedImages(path="a", train_per_class=5, test_per_class=100)
        pixels, labels = memory_map_image_dataset(
            files.make_dataset_file_of_classes(images, [0, 1], "train")
        )
        assert labels.tolist() == [0] * 5 + [1] * 5
        drawn.append(pixels[:, 0, 0, 0].tolist())
        assert (
            len(
                memory_map_image_dataset(
                    files.make_dataset_file_of_classes(images, [0, 1], "test")
                )[1]
            )
            == 80
        )
    assert drawn[0] == drawn[1]
    assert drawn[0][:5] == sorted(drawn[0][:5]) != [0, 2, 4, 6, 8]
    assert all(value % 2 == 0 for value in drawn[0][:5])


def test_a_file_is_made_once(files, tmp_path):
    write_idx_folder(tmp_path / "a", draw_numbered_images(4), np.array([0, 1, 0, 1], np.uint8))
    first = files.make_dataset_file_of_classes(PlannedImages(path="a"), [0], "train")
    made = first.stat().st_mtime_ns
    assert (
        ExperimentDatasetCache(tmp_path, tmp_path / "cache").make_dataset_file_of_classes(
            PlannedImages(path="a"), [0], "train"
        )
        == first
    )
    assert first.stat().st_mtime_ns == made


def test_other_content_under_the_same_path_is_another_source(files, tmp_path):
    write_idx_folder(tmp_path / "a", draw_numbered_images(4), np.array([0, 1, 0, 1], np.uint8))
    before = files.decode_experiment_data_set(PlannedImages(path="a")).content_digest
    write_idx_folder(tmp_path / "a", draw_numbered_images(4), np.array([0, 0, 1, 1], np.uint8))
    assert (
        ExperimentDatasetCache(tmp_path, tmp_path / "cache")
        .decode_experiment_data_set(PlannedImages(path="a"))
        .content_digest
        != before
    )


def test_labels_of_eight_integers_give_the_class_first(files, tmp_path):
    labels = np.zeros((4, 8), ">i4")
    labels[:, 0] = [1, 0, 1, 0]
    labels[:, 1:] = 77
    write_idx_folder(tmp_path / "q", draw_numbered_images(4), labels, kind=12)
    assert memory_map_image_dataset(
        files.make_dataset_file_of_classes(PlannedImages(path="q"), [0, 1], "train")
    )[0][:, 0, 0, 0].tolist() == [
        1,
        3,
        0,
        2,
    ]


def test_archives_follow_each_other_and_class_folders_are_read_alike(files, tmp_path):
    content = {
        f"{part}/{c}/{i}.png": encode_png(10 * i)
        for part in ("train", "test")
        for c in "ab"
        for i in (1, 2)
    }
    (tmp_path / "zips").mkdir()
    for name, classes in (("1.zip", "ab"), ("2.zip", "cd")):
        with zipfile.ZipFile(tmp_path / "zips" / name, "w") as archive:
            for path, data in content.items():
                archive.writestr(
                    path.replace("/a/", f"/{classes[0]}/").replace("/b/", f"/{classes[1]}/"), data
                )
    zips = PlannedImages(path="zips", size=8)
    assert files.decode_experiment_data_set(zips).names == ("a", "b", "c", "d")
    pixels, labels = memory_map_image_dataset(
        files.make_dataset_file_of_classes(zips, [3, 0], "test")
    )
    assert labels.tolist() == [0, 0, 1, 1]
    assert sorted(pixels[:2, 0, 0, 0].tolist()) == [10, 20]
    for path, data in content.items():
        file = tmp_path / "folder" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    folder = PlannedImages(path="folder", size=8)
    assert files.decode_experiment_data_set(folder).names == ("a", "b")
    same = (
        memory_map_image_dataset(files.make_dataset_file_of_classes(folder, [0, 1], "train")),
        memory_map_image_dataset(files.make_dataset_file_of_classes(zips, [2, 3], "train")),
    )
    assert all((ours == theirs).all() for ours, theirs in zip(*same, strict=True))
    shutil.copy(tmp_path / "zips" / "1.zip", tmp_path / "zips" / "3.zip")
    with pytest.raises(PlanError, match="the class 'a' is in another archive too"):
        ExperimentDatasetCache(tmp_path, tmp_path / "cache").decode_experiment_data_set(zips)


def test_a_cut_idx_file_is_refused(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    write_idx(path, draw_numbered_images(3))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"is cut short: its header promises \(3, 4, 4\)"):
        read_idx_array(path)
    path.write_bytes(b"PNG")
    with pytest.raises(ValueError, match="is not an idx file"):
        read_idx_array(path)


def test_a_missing_part_is_named(files, tmp_path):
    write_idx_folder(tmp_path / "a", draw_numbered_images(2), np.array([0, 1], np.uint8))
    (tmp_path / "a" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(PlanError, match="needs one idx file of test labels, found 0"):
        files.decode_experiment_data_set(PlannedImages(path="a"))
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_bundled_digits_need_no_files(tmp_path):
    files = ExperimentDatasetCache(tmp_path / "none", tmp_path / "cache")
    images = PlannedImages(path="bundled/digits", size=8, channels=1)
    assert files.decode_experiment_data_set(images).names == tuple("0123456789")
    pixels, labels = memory_map_image_dataset(
        files.make_dataset_file_of_classes(images, [3, 4], "train")
    )
    assert (
        pixels.shape[1:] == (8, 8, 1)
        and 280 <= len(labels) <= 320
        and set(labels.tolist()) == {0, 1}
    )


@pytest.mark.slow
def test_half_of_the_signed_digits_are_negatives(tmp_path):
    files = ExperimentDatasetCache(tmp_path / "none", tmp_path / "cache")
    shapes = {"size": 8, "channels": 1}
    plain, signed = (
        memory_map_image_dataset(
            files.make_dataset_file_of_classes(
                PlannedImages(path=f"bundled/{name}", **shapes), [3], "train"
            )
        )[0]
        for name in ("digits", "signed-digits")
    )
    dark, light = ((signed < 128).mean(axis=(1, 2, 3)) > 0.5).sum(), (signed >= 128).sum() > 0
    assert (
        light
        and 0.35 < dark / len(signed) < 0.65
        and (plain < 128).mean(axis=(1, 2, 3)).min() > 0.5
    )
