"""The last lines of the code that loads: normalising, and `network` with its weights.

In a card `Network` is the class that the version answers with.
"""

import torch
from safetensors.torch import load_file

from core.export.loading.networks.plain import Network
from core.export.loading.start import config

# The card begins here.


def normalise(pixels):
    """uint8 [B, size, size, channels] to the network's input."""
    shift = torch.tensor([255 * mean for mean in config["normalise"]["mean"]])
    scale = torch.tensor([1 / (255 * std) for std in config["normalise"]["std"]])
    return ((pixels.float() - shift) * scale).permute(0, 3, 1, 2)


tensors = load_file("model.safetensors")
network = Network(tensors)
network.load_state_dict(tensors)
network.eval()
