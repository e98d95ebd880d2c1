"""Architectures of timm as backbones."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from core.learn.networks.backbone import Backbone, ImageSpec, split_evenly
from core.learn.torchvision_import import torchvision_models


class TimmHyper(BaseModel):
    """`model`: architecture and weights as timm names them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str = "resnet18.a1_in1k"


class TimmBackbone(Backbone):
    """A network of timm without its classifier; each of its children is a layer."""

    ignored = ("fc.", "head.", "classifier.")

    def __init__(self, hyper: TimmHyper, image: ImageSpec) -> None:
        super().__init__()
        torchvision_models()
        import timm

        net = timm.create_model(hyper.model, pretrained=False, num_classes=0, in_chans=image.channels)
        self.width = int(net.num_features)  # type: ignore[arg-type]
        self._forward = net.forward
        layers: list[tuple[str, ...]] = []
        for name, child in net.named_children():
            setattr(self, name, child)
            if child.state_dict():
                layers.append((name,))
        self.declare_stages(split_evenly(layers, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Features [B, width]."""
        features: Tensor = self._forward(x)
        return features
