"""The first lines of every card: what the rest imports, and the download's configuration."""

# The card begins here.
import json

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

with open("config.json", encoding="utf-8") as file:
    config = json.load(file)
