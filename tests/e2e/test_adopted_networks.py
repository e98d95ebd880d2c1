"""Classifiers of timm and torchvision, adopted as they are: every logit has the same bits."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import nn

from core.learning.timm_import import import_timm_models
from core.learning.torchvision_import import import_torchvision_models
from tests.e2e.adopted import load_version
from tests.rest import Rest
from tools.service import RunningService

pytestmark = pytest.mark.campaign

CLASSES = [f"class {number}" for number in range(10)]
NETWORKS: dict[str, tuple[Any, int]] = {
    "timm/test_efficientnet.r160_in1k": ("timm/test_efficientnet.r160_in1k", 64),
    "timm/test_resnet.r160_in1k": ("timm/test_resnet.r160_in1k", 64),
    "timm/test_convnext.r160_in1k": ("timm/test_convnext.r160_in1k", 64),
    "timm/test_vit.r160_in1k": ("timm/test_vit.r160_in1k", 160),
    "torchvision/resnet18": ({"name": "resnet18", "stem": "standard"}, 64),
    "torchvision/convnext_tiny": ({"name": "convnext_tiny", "stem": "standard"}, 64),
}
"""Name of a network outside → its architecture here, and pixels a side."""


def build_original_network(name: str) -> nn.Module:
    """Build the network as its own package does, with random weights and statistics."""
    torch.manual_seed(0)
    family, _, model = name.partition("/")
    if family == "timm":
        net = import_timm_models().create_model(model.partition(".")[0], num_classes=len(CLASSES))
    else:
        net = getattr(import_torchvision_models(), model)(weights=None, num_classes=len(CLASSES))
    assert isinstance(net, nn.Module)
    for buffer_name, buffer in net.named_buffers():
        if buffer_name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        if buffer_name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    return net.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_logits_of_100_images_are_equal_bit_by_bit(
    client: Rest, running: RunningService, name: str
) -> None:
    architecture, size = NETWORKS[name]
    net = build_original_network(name)
    params = {
        "architecture": architecture if isinstance(architecture, str) else json.dumps(architecture),
        "image_size": size,
        "classes": json.dumps(CLASSES),
    }
    body = save({key: tensor.contiguous() for key, tensor in net.state_dict().items()})
    headers = {"Content-Type": "application/safetensors"}
    sent = {"params": params, "content": body, "headers": headers}
    # timm is imported before the body is read, which a busy machine may give up after a minute.
    for _ in range(5):
        answer = client.http.post("/v1/bases", **sent, timeout=300)
        if answer.status_code != 503:
            break
    base = answer.json()
    model = name.replace("/", "-").replace("_", "-").lower()
    asked = {"name": model, "scenario": "class", "base": base["id"]}
    client.call("POST", "/v1/models", json=asked)
    network = load_version(client, running.data_dir, model, 1)
    x = torch.randn(100, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.equal(network(x), net(x))
