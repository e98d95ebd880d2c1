"""The review walks from a version to an older one and measures on the way."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from core.contract.manifest import Manifest
from core.export.format import VersionPartFileToExport, VersionToExport
from core.export.formats.safetensors_zip import SafetensorsZipFormat
from core.learning.catalogue import build_recipe_catalogue
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.networks.linear.linearised import LinearisedNetwork
from tools import review

RESNET = {"name": "resnet20"}
MLP = {"name": "mlp", "hidden": [8]}
SIZE = 8


def build_random_network(seed: int, scenario: str = "class", architecture=MLP, **heads) -> Network:
    """Build a network with random weights, rows and statistics."""
    built = build_network(
        architecture, ImageSpec(SIZE, 1), scenario, HeadSpec.from_manifest(heads), seed
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in built.state_dict().items():
            if tensor.is_floating_point() and not name.startswith("backbone.fc"):
                tensor.add_(torch.rand(tensor.shape, generator=generator))
    return built


def write_download_file(folder: Path, name: str, of: Network, architecture=MLP, **changes) -> Path:
    parts = []
    for part, tensors in of.copy_parts_to_cpu().items():
        save_file(tensors, folder / f"{name}-{part}")
        path = folder / f"{name}-{part}"
        parts.append(
            VersionPartFileToExport(part, path, hashlib.sha256(path.read_bytes()).hexdigest())
        )
    manifest = {
        "model": "mdl_x", "version": 1, "scenario": of.scenario, "architecture": architecture,
        "image": {"size": SIZE, "channels": 1}, "normalise": None, "classes": of.classes,
        "heads": [{"task": t, "classes": c} for t, c in of.head_classes.items()], **changes,
    }  # fmt: skip
    SafetensorsZipFormat().write_download(
        folder / name,
        VersionToExport(Manifest.from_json(manifest), parts, build_recipe_catalogue()),
    )
    return folder / name


def write_archive(folder: Path, *classes: str, top: str = "", name: str = "set.zip") -> Path:
    with zipfile.ZipFile(folder / name, "a") as file:
        for i, label in enumerate(classes * 6):
            pixels = np.random.default_rng([i, len(top)]).integers(0, 256, (SIZE, SIZE), np.uint8)
            png = io.BytesIO()
            Image.fromarray(pixels).save(png, "PNG")
            file.writestr(f"{top}{label}/{i}.png", png.getvalue())
    return folder / name


def read_downloads(*paths: Path):
    return [review.read_downloaded_version(path) for path in paths]


def test_the_line_starts_at_the_newer_version_and_ends_at_the_older_one(tmp_path: Path) -> None:
    """Statistics of BatchNorm go along; the row of a class that only the newer version
    knows stays.
    """
    before, after = (
        build_random_network(1, architecture=RESNET, classes=["b", "a"]),
        build_random_network(2, architecture=RESNET, classes=["a", "c", "b"]),
    )
    old, new = read_downloads(
        write_download_file(tmp_path, "old.zip", before, RESNET),
        write_download_file(tmp_path, "new.zip", after, RESNET),
    )
    built = review.build_version_network(new)
    walked = []
    for point in review.measure_accuracies_along_interpolation(
        built, new.tensors, review.build_older_interpolation_end_weights(old, new), [], None
    ):
        walked.append({name: t.clone() for name, t in built.state_dict().items()})
        assert point.share == point.k / 50
    assert len(walked) == 51
    first, last = before.state_dict(), after.state_dict()
    for name, tensor in last.items():
        assert torch.equal(walked[0][name], tensor), name
        if name.startswith("backbone.") and tensor.is_floating_point():
            assert torch.equal(walked[50][name], first[name]), name
            torch.testing.assert_close(walked[10][name], 0.8 * tensor + 0.2 * first[name])
    assert torch.equal(walked[50]["head.weight"][[0, 2]], first["head.weight"][[1, 0]])
    assert torch.equal(walked[50]["head.weight"][1], last["head.weight"][1])


def test_a_base_ends_the_line_and_leaves_the_head(tmp_path: Path) -> None:
    before, after = build_random_network(1), build_random_network(2, classes=["a", "b"])
    save_file(
        before.backbone.state_dict() | {"fc.bias": torch.ones(1)}, tmp_path / "base.safetensors"
    )
    old, new = read_downloads(
        tmp_path / "base.safetensors", write_download_file(tmp_path, "new.zip", after)
    )
    end = review.build_older_interpolation_end_weights(old, new)
    assert set(end) == {"backbone.fc1.weight", "backbone.fc1.bias"}
    assert torch.equal(end["backbone.fc1.weight"], before.state_dict()["backbone.fc1.weight"])


def test_the_accuracies_are_those_of_the_interpolated_network(tmp_path: Path, capsys) -> None:
    before, after = (
        build_random_network(1, classes=["a"]),
        build_random_network(2, classes=["a", "b"]),
    )
    old, new = (
        write_download_file(tmp_path, "old.zip", before),
        write_download_file(tmp_path, "new.zip", after),
    )
    images = write_archive(tmp_path, "a", "b")
    review.main([str(old), str(new), str(images)])
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in table[1:-1]] == [str(k) for k in range(51)]

    measured = review.decode_labelled_archive(
        str(images), after, ImageSpec(SIZE, 1), tmp_path / "again"
    ).data
    x = ((measured.images.float() / 255 - 0.5) / 0.25).permute(0, 3, 1, 2)
    for k in (0, 25, 50):
        middle = build_random_network(2, classes=["a", "b"])
        for name, tensor in middle.named_parameters():
            rows = slice(1) if name.startswith("head.") else slice(None)
            tensor.data[rows] = tensor.data[rows].lerp(before.state_dict()[name], k / 50)
        right = (middle(x).argmax(1) == measured.labels).double().mean().item()
        assert float(table[1 + k][2]) == pytest.approx(right, abs=1e-4)
    best = max(float(row[-1]) for row in table[1:-1])
    assert table[-1][2] == f"{best:.4f}"


def build_linearised_network(
    seed: int, displacement: float, classes: list[str]
) -> LinearisedNetwork:
    """Build a network around the weights of `build_random_network(seed)`.
    A first task or a base brought them.
    """
    built = LinearisedNetwork(
        build_random_network(seed, architecture=RESNET, classes=classes),
        slope=0.01,
        fixed_head=False,
        frozen=True,
    )
    with torch.no_grad():
        for parameter in built.displacement.parameters():
            parameter.fill_(displacement)
    return built.eval()


@pytest.mark.slow
def test_the_line_of_a_linearised_version_lies_in_its_displacement(tmp_path: Path) -> None:
    before, after = (
        build_linearised_network(1, 0.01, ["a"]),
        build_linearised_network(1, 0.03, ["a", "b"]),
    )
    old = write_download_file(
        tmp_path, "old.zip", before, RESNET, network=before.describe_for_manifest()
    )
    new = write_download_file(
        tmp_path, "new.zip", after, RESNET, network=after.describe_for_manifest()
    )
    start, end = (
        read_downloads(new)[0].tensors,
        review.build_older_interpolation_end_weights(*read_downloads(old, new)),
    )
    walked = list(
        review.measure_accuracies_along_interpolation(
            built := review.build_version_network(read_downloads(new)[0]), start, end, [], None
        )
    )
    assert len(walked) == 51
    for name, tensor in built.state_dict().items():
        if name.startswith("displacement."):
            assert torch.equal(tensor, torch.full_like(tensor, 0.01)), name
        elif name.startswith("backbone."):
            assert torch.equal(tensor, start[name]), name
    review.main([str(old), str(new), str(write_archive(tmp_path, "a", "b"))])


def test_the_base_of_a_linearised_version_ends_the_line_at_no_displacement(tmp_path: Path) -> None:
    after = build_linearised_network(1, 0.03, ["a", "b"])
    new = write_download_file(
        tmp_path, "new.zip", after, RESNET, network=after.describe_for_manifest()
    )
    for seed in (1, 2):
        base = build_random_network(seed, architecture=RESNET).backbone.state_dict()
        save_file(base, tmp_path / f"base-{seed}.safetensors")
    end = review.build_older_interpolation_end_weights(
        *read_downloads(tmp_path / "base-1.safetensors", new)
    )
    moved = [name for name in end if name.startswith("displacement.")]
    assert moved and all(not end[name].any() for name in moved)
    with pytest.raises(ValueError, match="not expanded around the same weights"):
        review.build_older_interpolation_end_weights(
            *read_downloads(tmp_path / "base-2.safetensors", new)
        )
    other = build_linearised_network(2, 0.03, ["a"])
    stranger = write_download_file(
        tmp_path, "other.zip", other, RESNET, network=other.describe_for_manifest()
    )
    with pytest.raises(ValueError, match="not expanded around the same weights"):
        review.build_older_interpolation_end_weights(*read_downloads(stranger, new))


def test_an_archives_test_part_is_what_counts(tmp_path: Path) -> None:
    write_archive(tmp_path, "a", "b", top="train/")
    images = write_archive(tmp_path, "b", top="test/")
    found = review.decode_labelled_archive(
        str(images),
        build_random_network(1, classes=["a", "b"]),
        ImageSpec(SIZE, 1),
        tmp_path / "out",
    )
    assert found.data.labels.tolist() == [1] * 6


def test_in_the_task_scenario_the_archive_names_its_head(tmp_path: Path) -> None:
    heads = [{"task": 1, "classes": ["a", "b"]}, {"task": 3, "classes": ["c", "d"]}]
    after = build_random_network(2, "task", heads=heads)
    before = build_random_network(1, "task", heads=heads[:1])
    old, new = read_downloads(
        write_download_file(tmp_path, "old.zip", before),
        write_download_file(tmp_path, "new.zip", after),
    )
    end = review.build_older_interpolation_end_weights(old, new)
    assert "heads.1.weight" in end and "heads.3.weight" not in end
    images = write_archive(tmp_path, "c", "d")
    found = review.decode_labelled_archive(
        f"3={images}", after, ImageSpec(SIZE, 1), tmp_path / "out"
    )
    assert (found.task, found.data.names) == (3, ["c", "d"])
    with pytest.raises(ValueError, match="there are 1, 3"):
        review.decode_labelled_archive(str(images), after, ImageSpec(SIZE, 1), tmp_path / "out")


def test_what_cannot_be_reviewed_is_refused_in_a_sentence(tmp_path: Path) -> None:
    version = write_download_file(tmp_path, "v.zip", build_random_network(1, classes=["a"]))
    other = write_download_file(
        tmp_path, "o.zip", build_random_network(1, classes=["a"], architecture=RESNET), RESNET
    )
    nothing = write_download_file(tmp_path, "n.zip", build_random_network(1))
    images = write_archive(tmp_path, "a")
    strangers = write_archive(tmp_path, "z", name="strangers.zip")
    save_file({"fc1.bias": torch.zeros(8)}, tmp_path / "part.safetensors")
    for old, new, file, sentence in (
        (other, version, images, "differ in architecture"),
        (version, nothing, images, "learned no classes"),
        (images, version, images, "no download of a version"),
        (tmp_path / "part.safetensors", version, images, "lacks the tensor backbone.fc1.weight"),
        (version, version, strangers, "z"),
        (version, version, tmp_path / "missing.zip", "No such file"),
    ):
        with pytest.raises(SystemExit, match=sentence):
            review.main([str(old), str(new), str(file)])


def test_versions_that_grew_by_an_expert_share_no_line() -> None:
    config = {
        "architecture": {"name": "dne"},
        "image": {"size": 8, "channels": 3},
        "scenario": "class",
    }
    old, new = (
        review.DownloadedVersion(
            {**config, "classes": ["a"], "heads": []},
            {"backbone.x": torch.zeros(1), "head.weight": torch.zeros(1, width)},
        )
        for width in (3, 4)
    )
    with pytest.raises(
        ValueError, match=r"differ in the shape of head\.weight: \(1, 3\) and \(1, 4\)"
    ):
        review.build_older_interpolation_end_weights(old, new)
