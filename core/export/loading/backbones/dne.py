"""A vision transformer with gated attention to positions: the first expert of dense network expansion."""

import torch
from torch import nn
from torch.nn import functional as F

from core.export.loading.start import config

# The card begins here.


class Attention(nn.Module):
    """Between patches: by content, and by position where it is gated."""

    def __init__(self, tensors, name):
        super().__init__()
        width = tensors[f"{name}.query.weight"].shape[0]
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.heads = width // config["architecture"].get("head_dim", 32)
        if f"{name}.gate" in tensors:
            self.gate = nn.Parameter(torch.empty(self.heads))
            self.position = nn.Parameter(torch.empty(self.heads, 3))

    def forward(self, asking, y):
        q, k, v = (
            z.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for z in (self.query(asking), self.key(y), self.value(y))
        )
        out = F.scaled_dot_product_attention(q, k, v)
        if hasattr(self, "gate"):
            grid = round(y.shape[1] ** 0.5)
            at = torch.stack([torch.arange(grid).repeat(grid), torch.arange(grid).repeat_interleave(grid)])
            away = (at[:, None, :] - at[:, :, None]).to(self.position)
            away = torch.cat([away, away.square().sum(0, keepdim=True)])
            share = self.gate.sigmoid()[:, None, None]
            out = (1 - share) * out + share * (torch.einsum("hk,kij->hij", self.position, away).softmax(-1) @ v)
        return self.out(out.transpose(1, 2).flatten(2))


class TaskAttention(nn.Module):
    """Between heads, patch by patch: those of a new expert read all."""

    def __init__(self, tensors, name):
        super().__init__()
        for key in ("query", "key", "scale", "value", "bias"):
            self.register_parameter(key, nn.Parameter(torch.empty_like(tensors[f"{name}.{key}"])))

    def forward(self, own, heads):
        channels = self.query.shape[0]
        z, x = (y.unflatten(-1, (-1, channels)) for y in (own, torch.cat(heads, -1)))
        scores = (z @ self.query.T) @ (x @ self.key.T).transpose(-1, -2) / channels**0.5
        values = torch.einsum("...jc,joc->...jo", x, self.value) + self.bias
        return (self.scale[:, None] * (scores.softmax(-1) @ values)).flatten(-2)


class Mixing(nn.Module):
    """The first expert's is an MLP of its own channels."""

    def __init__(self, tensors, name):
        super().__init__()
        for part in ("inner", "outer"):
            weight = tensors.get(f"{name}.{part}.weight")
            made = TaskAttention(tensors, f"{name}.{part}") if weight is None else nn.Linear(*weight.T.shape)
            self.add_module(part, made)

    def read(self, part, own, heads):
        layer = self.get_submodule(part)
        return layer(own) if isinstance(layer, nn.Linear) else layer(own, heads)


class Layer(nn.Module):
    def __init__(self, tensors, name):
        super().__init__()
        width = tensors[f"{name}.norm1.weight"].shape[0]
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(tensors, f"{name}.attention")
        self.mixing = Mixing(tensors, f"{name}.mixing")

    def attend(self, r, token):
        """From the patches to themselves, or from the class token to all."""
        if token is None:
            y = self.norm1(r)
            return r + self.attention(y, y)
        token = token.expand(len(r), -1, -1)
        y = self.norm1(torch.cat([token, r], 1))
        return token + self.attention(y[:, :1], y)


class Expert(nn.Module):
    def __init__(self, tensors, name):
        super().__init__()
        width, channels, patch, _ = tensors[f"{name}.patch.weight"].shape
        self.patch = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(torch.empty_like(tensors[f"{name}.position"]))
        self.token = nn.Parameter(torch.empty_like(tensors[f"{name}.token"]))
        count = sum(n.startswith(f"{name}.layers.") and n.endswith("norm1.weight") for n in tensors)
        self.layers = nn.ModuleList(Layer(tensors, f"{name}.layers.{i}") for i in range(count))
        self.norm = nn.LayerNorm(width)


def chain(experts, x):
    """The features of all experts; each reads those before it."""
    rows = [e.patch(x).flatten(2).transpose(1, 2) + e.position for e in experts]
    for layers in zip(*(e.layers for e in experts)):
        last = layers[0] is experts[0].layers[-1]
        spread = [l.attend(r, e.token if last else None) for l, r, e in zip(layers, rows, experts)]
        heads = [l.norm2(s) for l, s in zip(layers, spread)]
        wide = [F.gelu(l.mixing.read("inner", heads[t], heads[: t + 1])) for t, l in enumerate(layers)]
        rows = [s + l.mixing.read("outer", wide[t], wide[: t + 1]) for t, (l, s) in enumerate(zip(layers, spread))]
    return torch.cat([e.norm(r[:, 0]) for e, r in zip(experts, rows)], 1)


class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.expert = Expert(tensors, "backbone.expert")
        self.width = self.expert.norm.normalized_shape[0]

    def forward(self, x):
        return chain([self.expert], x)
