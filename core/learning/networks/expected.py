"""Command that prints the required content of a base, for a caller that must not import torch.

`python -m core.learning.networks.expected '{"architecture": {"name": "resnet18"}, "image": {"size":
224, "channels": 3}}'` writes the JSON of `describe_expected_base_tensors` and exits 0, or writes
one sentence to stderr and exits 2.
"""

from __future__ import annotations

import json
import sys

from core.learning.networks import describe_expected_base_tensors
from core.learning.networks.backbone import ImageSpec


def main(argument: str) -> int:
    """Print the tensors expected in an uploaded base as JSON, as a command; return the exit
    status.
    """
    try:
        request = json.loads(argument)
        requirements = describe_expected_base_tensors(
            request["architecture"], ImageSpec.parse_image_field(request["image"])
        )
    # Errors of the request, which the caller passes on; anything else is a mistake here, and keeps
    # its traceback.
    except (ValueError, KeyError, TypeError) as error:
        print(f"cannot say what this architecture expects: {error}", file=sys.stderr)
        return 2
    print(json.dumps(requirements))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: python -m core.learning.networks.expected JSON", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
