"""Toy networks in float64, and curvature measured slowly: one backward per example and probe."""

import torch
from torch import nn

from core.learning.curvature.estimate import CurvatureEstimator
from core.learning.curvature.fisher import make_basis_vector_cotangents
from core.learning.curvature.layers import list_layers_owning_parameters


def cnn(seed=0):
    """Two convolutions and two linear layers on [B, 2, 6, 6]; three outputs."""
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


def images(n=6, seed=1, shape=(2, 6, 6)):
    return torch.randn(
        n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def layers(network):
    return list_layers_owning_parameters(network, [name for name, _ in network.named_parameters()])


def measure(network, x, kind, cotangents=make_basis_vector_cotangents, names=None, batch=None):
    """The estimate after x in chunks of `batch`."""
    estimate = CurvatureEstimator(network, network, dict.fromkeys(names or layers(network), kind))
    for chunk in x.split(batch or len(x)):
        estimate.add_examples(chunk, cotangents)
    return estimate


def blocks(network, x, kind, cotangents=make_basis_vector_cotangents, names=None, batch=None):
    return measure(network, x, kind, cotangents, names, batch).build_curvature_blocks()


def parameters_of(network, layer):
    """Weight and bias, or None, of a layer's name."""
    named = dict(network.named_parameters())
    if layer in named:
        return named[layer], None
    joint = "_" if layer.endswith("in_proj") else "."
    return named[f"{layer}{joint}weight"], named.get(f"{layer}{joint}bias")


def joined(weight, bias=None):
    d = weight.reshape(weight.shape[0], -1)
    return d if bias is None else torch.cat([d, bias[:, None]], 1)


def slow_gradients(network, layer, x, cotangents=make_basis_vector_cotangents):
    """M [N, probes, o, w] of a layer."""
    asked = [parameter for parameter in parameters_of(network, layer) if parameter is not None]
    rows = []
    for one in x:
        outputs = network(one[None])
        probes = cotangents(outputs.detach())
        grads = [torch.autograd.grad(outputs, asked, probe, retain_graph=True) for probe in probes]
        rows.append(torch.stack([joined(*of_probe) for of_probe in grads]))
    return torch.stack(rows)


def slow_exact(network, layer, x):
    """The exact block [o w, o w]."""
    m = slow_gradients(network, layer, x, make_basis_vector_cotangents).flatten(2)
    return torch.einsum("nri,nrj->ij", m, m) / len(x)


def matrix_of(block, o):
    """H [o w, o w] of a block, a column for each unit displacement."""
    w = block.count_displacement_columns(o)
    units = torch.eye(o * w, dtype=torch.float64).view(-1, o, w)
    return torch.stack([block.multiply_by_curvature(unit).flatten() for unit in units], 1)


def dense(network, layer, block):
    """H [o w, o w] of the block of a layer."""
    return matrix_of(block, parameters_of(network, layer)[0].shape[0])


def relative(a, b):
    return float((a - b).norm() / b.norm())


def outer_traces(matrix, o):
    """Both partial traces, [w, w] and [o, o], of H [o w, o w]."""
    w = matrix.shape[0] // o
    h = matrix.view(o, w, o, w)
    return torch.einsum("iaib->ab", h), torch.einsum("iaja->ij", h)
