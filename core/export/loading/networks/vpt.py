"""Visual prompt tuning."""

import torch
from torch import nn

from core.export.loading.networks.plain import Network
from core.export.loading.start import config

# The card begins here.


class PromptedNetwork(Network):
    """With learned tokens beside the patches (visual prompt tuning): one set for all tasks, or one each."""

    def __init__(self, tensors):
        super().__init__(tensors)
        sets = {name.removeprefix("prompts."): t for name, t in tensors.items() if name.startswith("prompts.")}
        self.prompts = nn.ParameterDict({name: torch.empty_like(t) for name, t in sets.items()})

    def forward(self, x, task=None):
        by_task = config["network"]["tasks"] is not None
        prompts, encoder = self.prompts[str(task) if by_task else "shared"], self.backbone.encoder
        patches = self.backbone.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.backbone.class_token.expand(len(x), -1, -1), patches], dim=1) + encoder.pos_embedding
        for i, block in enumerate(encoder.layers):
            if i < len(prompts):  # in place of those before; none are before the first block
                patches = x[:, 1 if i == 0 else 1 + prompts.shape[1] :]
                x = torch.cat([x[:, :1], prompts[i].expand(len(x), -1, -1), patches], dim=1)
            x = block(x)
        x = encoder.ln(x)[:, 0]
        return (self.heads[str(task)] if len(self.heads) else self.head)(x)
