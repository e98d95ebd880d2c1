"""The predict helper: a version answers by its method, whatever the network's head says."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from core.ingest.limits import Limits
from core.learn.networks import HeadSpec, ImageSpec, build_network
from core.work.predictor import Networks, answer

ARCHITECTURE = {"name": "mlp", "hidden": [5]}


def test_a_version_of_icarl_answers_with_its_nearest_class_mean(tmp_path: Path) -> None:
    network = build_network(ARCHITECTURE, ImageSpec(4, 1), "class", HeadSpec(("ant", "bee")), seed=2)
    pixels = torch.randint(0, 256, (6, 4, 4, 1), dtype=torch.uint8, generator=torch.manual_seed(0))
    features = network.features((pixels.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25).detach()
    parts = {**network.parts(), "own": {"class_means": torch.nn.functional.normalize(features[:2])}}
    paths = {name: str(tmp_path / name) for name in parts}
    for name, tensors in parts.items():
        save_file(tensors, paths[name])
    manifest = {
        "version": 1, "architecture": ARCHITECTURE, "image": {"size": 4, "channels": 1}, "scenario": "class",
        "classes": ["ant", "bee"], "heads": [], "method": {"name": "icarl", "hyper": {"exemplars": 9}},
    }  # fmt: skip
    header = {"version_id": "ver", "version": 1, "manifest": manifest, "parts": paths, "task": None}
    body = [json.dumps(pixels.tolist()).encode()]
    networks, limits = Networks(), Limits()
    for _ in range(2):  # loaded, and then kept
        found = json.loads(answer(networks, limits, {**header, "format": "arrays"}, body))
        assert [p["label"] for p in found["predictions"][:2]] == ["ant", "bee"]
        assert all(abs(sum(p["probabilities"].values()) - 1) < 1e-5 for p in found["predictions"])
    head = {**manifest, "method": {"name": "finetune", "hyper": {}}}
    plain = json.loads(
        answer(
            networks, limits, {**header, "version_id": "other", "manifest": head, "format": "arrays"}, body
        )
    )
    assert {p["label"] for p in plain["predictions"]} == {"ant"}  # a zero head: always the first class
