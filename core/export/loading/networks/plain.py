"""A backbone and its heads. In a card `Backbone` is that of the version's architecture; here it is one of them."""

from torch import nn

from core.export.loading.backbones.mlp import Backbone
from core.export.loading.start import config

# The card begins here.


class Network(nn.Module):
    """float [B, channels, size, size], normalised, to logits; to features where nothing was learned yet."""

    def __init__(self, tensors):
        super().__init__()
        self.backbone = Backbone(tensors)
        width = self.backbone.width
        if "head.weight" in tensors:
            self.head = nn.Linear(width, tensors["head.weight"].shape[0])
        self.heads = nn.ModuleDict(
            {
                str(head["task"]): nn.Linear(width, len(head["classes"]))
                for head in config["heads"]
                if f"heads.{head['task']}.weight" in tensors
            }
        )

    def forward(self, x, task=None):
        x = self.backbone(x)
        if len(self.heads):  # one head per task: say which
            return self.heads[str(task)](x)
        return self.head(x) if hasattr(self, "head") else x
