"""Prints what a base for an architecture must hold, for a caller that must not import torch.

`python -m core.learn.networks.expected '{"architecture": {"name": "resnet18"}, "image": {"size": 224,
"channels": 3}}'` writes the JSON of `expected_base` and exits 0, or writes one sentence to stderr and exits
2.
"""

from __future__ import annotations

import json
import sys

from core.learn.networks import expected_base
from core.learn.networks.backbone import ImageSpec


def main(argument: str) -> int:
    """0 and JSON on stdout; 2 and a sentence on stderr when the request is not valid."""
    try:
        request = json.loads(argument)
        answer = expected_base(request["architecture"], ImageSpec.of(request["image"]))
    except (ValueError, KeyError, TypeError) as error:
        print(f"cannot say what this architecture expects: {error}", file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: python -m core.learn.networks.expected JSON", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
