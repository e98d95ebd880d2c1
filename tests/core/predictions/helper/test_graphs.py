"""Graphs in place of networks: when they are made, and what becomes of one that cannot be."""

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from core.learning.export.engine import ExportedPredictionEngine
from core.learning.export.graph import ExportFailed
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.predictions.helper import graphs
from core.predictions.helper.graphs import OnnxGraphMaker
from core.predictions.helper.networks import LoadedVersionCache
from core.predictions.helper.serving import predict_request_images_within_turn

SAYS = """
import json, os, sys
from core.processes.messages import read_framed_message, write_framed_message
header = json.loads(read_framed_message(sys.stdin.buffer))
read_framed_message(sys.stdin.buffer)
assert header["tasks"] == [[None, 100]] and len(read_framed_message(sys.stdin.buffer)) == 100 * 16
{then}
"""
REFUSES = SAYS.format(
    then='write_framed_message(sys.stdout.buffer, b\'{"detail": "It answers otherwise."}\')'
)
DIES = SAYS.format(then="os._exit(9)")
SLEEPS = "import sys; sys.stdin.buffer.read()"


@pytest.fixture
def header(tmp_path: Path) -> dict:
    """A question to a version with four classes."""
    architecture = {"name": "mlp", "hidden": [5]}
    network = build_network(architecture, ImageSpec(4, 1), "class", HeadSpec(tuple("abcd")), seed=3)
    with torch.no_grad():
        network.get_parameter("head.weight").normal_(generator=torch.manual_seed(1))
    paths = {name: str(tmp_path / name) for name in network.copy_parts_to_cpu()}
    for name, tensors in network.copy_parts_to_cpu().items():
        save_file(tensors, paths[name])
    manifest = {
        "version": 1, "architecture": architecture, "image": {"size": 4, "channels": 1},
        "scenario": "class", "classes": list("abcd"), "heads": [],
    }  # fmt: skip
    return {"owner": "own", "version_id": "ver", "version": 1, "parts": paths, "task": None, "top_k": 4,
            "turn_s": 60, "manifest": manifest}  # fmt: skip


@pytest.fixture
def made() -> Iterator[Callable[[Sequence[str]], LoadedVersionCache]]:
    """Versions in memory whose graphs a command makes, Python code."""
    all_of_them: list[OnnxGraphMaker] = []

    def make_version_cache(*command: str) -> LoadedVersionCache:
        maker = OnnxGraphMaker(1, command) if command else OnnxGraphMaker(1)
        all_of_them.append(maker)
        return LoadedVersionCache(maker)

    yield make_version_cache
    for maker in all_of_them:
        maker.end_export_process()


PIXELS = np.random.default_rng(0).integers(0, 256, (100, 4, 4, 1), dtype=np.uint8)


def predict_with_engine(
    networks: LoadedVersionCache, header: dict, images: int = 100
) -> tuple[list[dict], str]:
    manifest = json.dumps(header["manifest"]).encode()
    items, engine = predict_request_images_within_turn(
        networks,
        header,
        manifest,
        PIXELS.tobytes()[: images * header["manifest"]["image"]["size"] ** 2],
    )
    return [json.loads(item) for item in items], engine


def wait_until_true(condition: Callable[[], object], networks: LoadedVersionCache) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        networks.graphs.advance_graph_making()
        time.sleep(0.01)


@pytest.mark.campaign  # tests/api/routes/test_predict.py shows it over HTTP
def test_a_version_that_is_asked_often_answers_by_its_graph_and_says_the_same(header, made) -> None:
    networks = made()
    by_network, engine = predict_with_engine(networks, header)
    assert engine == "torch"
    graph = networks._kept["ver"].graph
    wait_until_true(lambda: graph.engine is not None or networks.graphs.notes, networks)
    by_graph, engine = predict_with_engine(networks, header)
    assert engine == "onnxruntime" and networks.graphs.notes == []
    for ours, theirs in zip(by_network, by_graph, strict=True):
        assert ours["label"] == theirs["label"]
        differences = [
            abs(ours["probabilities"][name] - p) for name, p in theirs["probabilities"].items()
        ]
        assert max(differences) <= graph.engine.tolerance + 1e-7


@pytest.mark.parametrize(
    ("code", "reason"),
    [(REFUSES, "It answers otherwise."), (DIES, "the process that makes graphs ended with 9")],
)
def test_a_graph_that_cannot_be_made_leaves_the_network_and_one_note(
    header, made, code, reason
) -> None:
    networks = made(sys.executable, "-c", code)
    predict_with_engine(networks, header, 99)
    networks.graphs.advance_graph_making()
    assert networks.graphs._making is None, "one image is missing"
    predict_with_engine(networks, header, 50)
    wait_until_true(lambda: networks.graphs.notes, networks)
    assert networks.graphs.notes == [{"version": "ver", "reason": reason}]
    assert predict_with_engine(networks, header)[1] == "torch"
    assert len(networks.graphs.notes) == 1 and networks.graphs._making is None


def test_without_the_packages_the_network_answers_and_one_note_says_why(
    header, made, monkeypatch
) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else True
    )
    networks = made(sys.executable, "-c", DIES)
    for _ in range(3):
        assert predict_with_engine(networks, header)[1] == "torch"
    (note,) = networks.graphs.notes
    assert "onnxruntime" in note["reason"] and networks.graphs._making is None


def test_without_a_graph_fused_layers_answer_once_they_have_answered_alike(
    tmp_path, made, monkeypatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    architecture = {"name": "resnet20", "width": 8}
    network = build_network(
        architecture, ImageSpec(8, 1), "class", HeadSpec(tuple("abcd")), seed=3
    ).train()
    with torch.no_grad():
        network.get_parameter("head.weight").normal_(generator=torch.manual_seed(1))
        network(
            torch.randn(64, 1, 8, 8, generator=torch.manual_seed(2)), None
        )  # statistics to fuse
    paths = {name: str(tmp_path / name) for name in network.copy_parts_to_cpu()}
    for name, tensors in network.copy_parts_to_cpu().items():
        save_file(tensors, paths[name])
    manifest = {
        "version": 1, "architecture": architecture, "image": {"size": 8, "channels": 1},
        "scenario": "class", "classes": list("abcd"), "heads": [],
    }  # fmt: skip
    header = {"owner": "own", "version_id": "ver", "version": 1, "parts": paths, "task": None, "top_k": 4,
              "turn_s": 60, "manifest": manifest}  # fmt: skip
    networks = made()
    exact = predict_with_engine(networks, header, 25)
    graph = networks._kept["ver"].graph
    predict_with_engine(networks, header, 24)
    assert graph.engine is None and graph.trial is not None, "a hundred images decide"
    for _ in range(4):
        predict_with_engine(networks, header, 25)
    assert graph.engine is not None and graph.trial is None
    fused = predict_with_engine(networks, header, 25)
    assert fused[1] == exact[1] == "torch"
    for ours, theirs in zip(exact[0], fused[0], strict=True):
        assert ours["label"] == theirs["label"]
        assert abs(ours["probability"] - theirs["probability"]) <= 1e-5


def test_fused_layers_that_answer_otherwise_are_not_used(header, made) -> None:
    networks = made(sys.executable, "-c", SLEEPS)
    exact = predict_with_engine(networks, header)
    graph = networks._kept["ver"].graph
    graph.fuse = lambda task: lambda images, task: np.full((len(images), 4), 0.25, np.float32)
    networks.graphs.give_up_graph(graph, "it cannot be made")
    assert predict_with_engine(networks, header) == predict_with_engine(networks, header) == exact
    assert graph.engine is None and graph.trial is None


def test_a_graph_that_fails_while_it_answers_is_given_up_for_the_network(header, made) -> None:
    networks = made(sys.executable, "-c", SLEEPS)
    before = predict_with_engine(networks, header, 1)

    def raise_export_failed(images: np.ndarray, task: int | None) -> np.ndarray:
        raise ExportFailed("out of memory")

    networks._kept["ver"].graph.engine = ExportedPredictionEngine(
        "onnxruntime", raise_export_failed, 1e-5
    )
    assert predict_with_engine(networks, header, 1) == before
    assert networks.graphs.notes == [{"version": "ver", "reason": "out of memory"}]


def test_a_version_that_leaves_memory_takes_the_making_of_its_graph_along(
    header, made, monkeypatch
) -> None:
    monkeypatch.setattr("core.predictions.helper.networks.KEPT_VERSIONS", 1)
    networks = made(sys.executable, "-c", SLEEPS)
    predict_with_engine(networks, header)
    networks.graphs.advance_graph_making()
    making = networks.graphs._making
    assert making is not None and making.folder.is_dir()
    predict_with_engine(networks, {**header, "version_id": "other"}, 1)
    assert making.process.returncode is not None and not making.folder.exists()
    assert networks.graphs._making is None


def test_large_images_are_kept_by_their_bytes(header, made, monkeypatch) -> None:
    monkeypatch.setattr(graphs, "SAMPLE_BYTES", 16 * 7)
    networks = made(sys.executable, "-c", SLEEPS)
    predict_with_engine(networks, header, 6)
    networks.graphs.advance_graph_making()
    assert networks.graphs._making is None
    predict_with_engine(networks, header, 1)
    networks.graphs.advance_graph_making()
    assert networks.graphs._making is not None
