"""Pretrained weights by name."""

from __future__ import annotations

from core.protocol.pretrained import Pretrained

_IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_KNOWN = {
    "test_resnet.r160_in1k": ("apache-2.0", 160, 473_000),
    "test_vit.r160_in1k": ("apache-2.0", 160, 371_000),
    "mobilenetv3_small_100.lamb_in1k": ("apache-2.0", 224, 1_517_000),
    "resnet18.a1_in1k": ("apache-2.0", 224, 11_177_000),
}


def pretrained_names() -> list[str]:
    """Every name, in order."""
    return sorted(_KNOWN)


def pretrained(name: str) -> Pretrained:
    """The weights of that name. Raises KeyError for an unknown one."""
    licence, size, parameters = _KNOWN[name]
    return Pretrained.from_json(
        {
            "name": name,
            "repository": f"timm/{name}",
            "licence": licence,
            "size": size,
            "channels": 3,
            **_IMAGENET,
            "interpolation": "bicubic",
            "crop": 0.95,
            "parameters": parameters,
        }
    )
