"""What a version adds to the store, over the bytes of the tensors that changed.

    python -m bench.new_bytes

Goal: ≤ 1.05, depth 1 included. "Changed" compares every tensor of a version's parts with the parent's,
byte for byte; "new" is the version's own `bytes_new`: blobs that no earlier version of the model has.
"""

import io
import tempfile
from itertools import pairwise
from pathlib import Path

from safetensors.numpy import load

from tools import digits, service
from tools.client import Client

CASES = {
    "finetune, depth 5": {"method": "finetune"},
    "finetune, depth 2": {"method": "finetune", "depth": 2},
    "finetune, depth 1": {"method": "finetune", "depth": 1},
    "ewc-online, depth 5": {"method": "ewc-online"},
    "ewc-online, depth 1": {"method": "ewc-online", "depth": 1},
}


def main() -> None:
    """Print a line per recipe: mean over versions 2 … 4."""
    with tempfile.TemporaryDirectory() as folder, service.running(Path(folder)) as running:
        client = Client(running.url, running.key)
        for number, (title, recipe) in enumerate(CASES.items()):
            model = f"bytes-{number}"
            client.create_model(model, recipe={**recipe, "epochs": 1})
            for _, archive in digits.archives()[:4]:
                client.wait(client.submit(model, archive))
            tensors = [_tensors(client, model, version) for version in range(1, 5)]
            changed = sum(_changed(old, new) for old, new in pairwise(tensors))
            new = sum(client.get(f"/v1/models/{model}/versions/{v}")["bytes_new"] for v in range(2, 5))
            whole = client.get(f"/v1/models/{model}/versions/4")["bytes"]
            print(
                f"{title:22} new {new / 3:>11,.0f} B a version of {whole:,} B"
                f"   new / changed {new / changed:.3f} (goal ≤ 1.05)",
                flush=True,
            )


def _tensors(client: Client, model: str, version: int) -> dict[str, bytes]:
    path = f"/v1/models/{model}/versions/{version}"
    found = {}
    for part in client.get(path)["parts"]:
        blob = client.call("GET", f"{path}/files/{part['name']}").content
        for name, array in load(io.BytesIO(blob).getvalue()).items():
            found[f"{part['name']}/{name}"] = array.tobytes()
    return found


def _changed(old: dict[str, bytes], new: dict[str, bytes]) -> int:
    return sum(len(data) for name, data in new.items() if old.get(name) != data)


if __name__ == "__main__":
    main()
