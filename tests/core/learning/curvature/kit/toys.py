"""Toy networks in float64, and curvature measured slowly: one backward per example and probe."""

import torch
from torch import nn

from core.learning.curvature.estimate import CurvatureEstimator
from core.learning.curvature.fisher import make_basis_vector_cotangents
from core.learning.curvature.layers import list_layers_owning_parameters


def build_cnn(seed=0):
    """Build two convolutions and two linear layers for [B, 2, 6, 6] with three outputs."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Conv2d(3, 4, 3, stride=2, bias=False),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
        nn.Linear(16, 5),
        nn.LeakyReLU(0.1),
        nn.Linear(5, 3),
    ).double()


def draw_images(n=6, seed=1, shape=(2, 6, 6)):
    return torch.randn(
        n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def list_layers(network):
    return list_layers_owning_parameters(network, [name for name, _ in network.named_parameters()])


def estimate_curvature(
    network, x, kind, cotangents=make_basis_vector_cotangents, names=None, batch=None
):
    """Return the estimate after x in chunks of `batch`."""
    estimate = CurvatureEstimator(
        network, network, dict.fromkeys(names or list_layers(network), kind)
    )
    for chunk in x.split(batch or len(x)):
        estimate.add_examples(chunk, cotangents)
    return estimate


def build_blocks(network, x, kind, cotangents=make_basis_vector_cotangents, names=None, batch=None):
    return estimate_curvature(network, x, kind, cotangents, names, batch).build_curvature_blocks()


def get_parameters(network, layer):
    """Return weight and bias, or None, of a layer by its name."""
    named = dict(network.named_parameters())
    if layer in named:
        return named[layer], None
    joint = "_" if layer.endswith("in_proj") else "."
    return named[f"{layer}{joint}weight"], named.get(f"{layer}{joint}bias")


def join_parameters(weight, bias=None):
    d = weight.reshape(weight.shape[0], -1)
    return d if bias is None else torch.cat([d, bias[:, None]], 1)


def compute_slow_gradients(network, layer, x, cotangents=make_basis_vector_cotangents):
    """Return M [N, probes, o, w] of a layer."""
    asked = [parameter for parameter in get_parameters(network, layer) if parameter is not None]
    rows = []
    for one in x:
        outputs = network(one[None])
        probes = cotangents(outputs.detach())
        grads = [torch.autograd.grad(outputs, asked, probe, retain_graph=True) for probe in probes]
        rows.append(torch.stack([join_parameters(*of_probe) for of_probe in grads]))
    return torch.stack(rows)


def compute_slow_exact_block(network, layer, x):
    """Return the exact block [o w, o w]."""
    m = compute_slow_gradients(network, layer, x, make_basis_vector_cotangents).flatten(2)
    return torch.einsum("nri,nrj->ij", m, m) / len(x)


def compute_matrix(block, o):
    """Return H [o w, o w] of a block, a column for each unit displacement."""
    w = block.count_displacement_columns(o)
    units = torch.eye(o * w, dtype=torch.float64).view(-1, o, w)
    return torch.stack([block.multiply_by_curvature(unit).flatten() for unit in units], 1)


def compute_layer_matrix(network, layer, block):
    """Return H [o w, o w] of the block of a layer."""
    return compute_matrix(block, get_parameters(network, layer)[0].shape[0])


def compute_relative_error(a, b):
    return float((a - b).norm() / b.norm())


def compute_partial_traces(matrix, o):
    """Return both partial traces, [w, w] and [o, o], of H [o w, o w]."""
    w = matrix.shape[0] // o
    h = matrix.view(o, w, o, w)
    return torch.einsum("iaib->ab", h), torch.einsum("iaja->ij", h)
