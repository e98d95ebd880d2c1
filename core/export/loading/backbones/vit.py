"""Vision transformers of torchvision."""

import torch
from torch import nn

from core.export.loading.backbones.torchvision import models
from core.export.loading.start import config

# The card begins here.


class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.width, channels, patch, _ = tensors["backbone.conv_proj.weight"].shape
        first = "backbone.encoder.layers.encoder_layer_"
        net = models.VisionTransformer(
            image_size=config["image"]["size"] // patch * patch,
            patch_size=patch,
            num_layers=sum(n.startswith(first) and n.endswith("ln_1.weight") for n in tensors),
            num_heads=config["attention_heads"],
            hidden_dim=self.width,
            mlp_dim=tensors[first + "0.mlp.0.weight"].shape[0],
        )
        self.conv_proj = nn.Conv2d(channels, self.width, patch, stride=patch)
        self.class_token = net.class_token
        self.encoder = net.encoder

    def forward(self, x):
        tokens = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(tokens), -1, -1), tokens], dim=1)
        return self.encoder(tokens)[:, 0]
