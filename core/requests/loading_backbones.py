"""Code of the backbones in `core.requests.loading_code`: `Backbone(tensors)`, by family of architectures."""

_MLP = """class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.count = sum(name.startswith("backbone.fc") and name.endswith(".weight") for name in tensors)
        for i in range(1, self.count + 1):
            outputs, inputs = tensors[f"backbone.fc{i}.weight"].shape
            self.add_module(f"fc{i}", nn.Linear(inputs, outputs))
        self.relu = nn.ReLU()
        self.width = outputs

    def forward(self, x):
        x = x.flatten(1)
        for i in range(1, self.count + 1):
            x = self.relu(self.get_submodule(f"fc{i}")(x))
        return x
"""

_SMALL_CNN = """class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.conv1 = nn.Conv2d(config["image"]["channels"], 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.fc1 = nn.Linear(1152, 128)
        self.relu = nn.ReLU()
        self.width = 128

    def forward(self, x):
        x = F.max_pool2d(self.relu(self.conv1(x)), 2)
        x = F.max_pool2d(self.relu(self.conv2(x)), 2)
        x = F.adaptive_avg_pool2d(self.relu(self.conv3(x)), 3)
        return self.relu(self.fc1(x.flatten(1)))
"""

_SMALL_RESNET = """class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU()

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + shortcut)


class Backbone(nn.Module):
    def __init__(self, tensors):
        super().__init__()
        width = tensors["backbone.conv1.weight"].shape[0]
        self.conv1 = nn.Conv2d(config["image"]["channels"], width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.stages, inputs = 0, width
        while f"backbone.layer{self.stages + 1}.0.conv1.weight" in tensors:
            stage, outputs, blocks = self.stages + 1, width * 2**self.stages, []
            while f"backbone.layer{stage}.{len(blocks)}.conv1.weight" in tensors:
                blocks.append(Block(inputs, outputs, 2 if stage > 1 and not blocks else 1))
                inputs = outputs
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            self.stages = stage
        self.width = inputs

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return x.mean((2, 3))
"""

_TORCHVISION = """try:
    from torchvision import models
except RuntimeError:  # its compiled operators do not fit this build of torch, and no network here needs one
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        operators.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models
"""

_RESNET = """


def Backbone(tensors):
    net = getattr(models, config["architecture"]["name"])(weights=None)
    kernel = tensors["backbone.conv1.weight"].shape[-1]
    net.conv1 = nn.Conv2d(
        config["image"]["channels"], 64, kernel, stride=1 if kernel == 3 else 2, padding=kernel // 2, bias=False
    )
    if kernel == 3:  # the stem for small images has no pooling
        net.maxpool = nn.Identity()
    net.width = net.fc.in_features
    net.fc = nn.Identity()
    return net
"""

_VIT = """


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
"""

_CONVNEXT = """


def Backbone(tensors):
    net = getattr(models, config["architecture"]["name"])(weights=None, stochastic_depth_prob=0.0)
    outputs, channels, kernel, _ = tensors["backbone.features.0.0.weight"].shape
    net.features[0][0] = nn.Conv2d(channels, outputs, kernel, stride=kernel)
    net.width = net.classifier[2].in_features
    net.classifier = nn.Sequential(net.classifier[0], nn.Flatten(1))
    return net
"""

_DNE = '''class Attention(nn.Module):
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
'''

BACKBONES = {
    "mlp": _MLP,
    "small-cnn": _SMALL_CNN,
    "resnet20": _SMALL_RESNET,
    "slim-resnet18": _SMALL_RESNET,
    "resnet": _TORCHVISION + _RESNET,
    "vit": _TORCHVISION + _VIT,
    "dne": _DNE,
    "convnext": _TORCHVISION + _CONVNEXT,
}
