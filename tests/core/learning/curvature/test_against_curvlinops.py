"""An independent implementation: curvlinops (Dangel et al. 2025, arXiv 2501.19183).

With MSELoss(reduction="sum"), which has no 1/2, both of their matrices are 2 N times ours; their
K-FAC divides A by N T and sums G over positions, as ours does, and keeps weight and bias together
when asked to.
"""

import numpy as np
import pytest
import torch
import toys
from curvlinops import GGNLinearOperator, KFACLinearOperator
from torch import nn


def compute_reference_matrix(network, x, operator, **options):
    """Return the other library's matrix by parameters, for half the squared error, mean over
    examples.
    """
    y = torch.zeros(len(x), 3, dtype=torch.float64)
    parameters = [p for p in network.parameters() if p.requires_grad]
    data = [(x, y)]
    found = operator(network, nn.MSELoss(reduction="sum"), parameters, data, **options)
    eye = torch.eye(found.shape[1], dtype=torch.float64)
    return (found @ eye) / 2 / len(x)


def find_parameter_order(network, layer):
    """Return where a layer's displacement [o, w], by rows, lies among all parameters."""
    start, places = 0, {}
    for p in network.parameters():
        places[id(p)] = torch.arange(start, start + p.numel()).view(p.shape)
        start += p.numel()
    weight, bias = toys.get_parameters(network, layer)
    return toys.join_parameters(
        places[id(weight)], None if bias is None else places[id(bias)]
    ).flatten()


@pytest.mark.parametrize("layer", ["0", "2", "5", "7"])
def test_the_exact_block_is_that_of_their_gauss_newton_matrix(layer) -> None:
    network, x = toys.build_cnn(), toys.draw_images()
    wanted = torch.as_tensor(np.asarray(compute_reference_matrix(network, x, GGNLinearOperator)))
    rows = find_parameter_order(network, layer)
    found = toys.build_blocks(network, x, "exact", names=[layer])[layer].matrix
    assert toys.compute_relative_error(found, wanted[rows][:, rows]) < 1e-10


@pytest.mark.parametrize("layer", ["0", "2", "5", "7"])
def test_kfac_is_theirs(layer) -> None:
    network, x = toys.build_cnn(), toys.draw_images()
    wanted = torch.as_tensor(
        np.asarray(
            compute_reference_matrix(
                network, x, KFACLinearOperator, fisher_type="type-2", separate_weight_and_bias=False
            )
        )
    )
    rows = find_parameter_order(network, layer)
    block = toys.build_blocks(network, x, "kfac", names=[layer])[layer]
    o = toys.get_parameters(network, layer)[0].shape[0]
    assert toys.compute_relative_error(toys.compute_matrix(block, o), wanted[rows][:, rows]) < 1e-10
