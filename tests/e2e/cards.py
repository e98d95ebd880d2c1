"""A large photo, and what the card of an unpacked download says of it."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def make_photo(digit: int, orientation: int) -> bytes:
    """Make a photo of a digit as a camera would send it: a large, noisy JPEG on its side."""
    pixels = np.rint(load_digits().images[digit] * (255 / 16)).astype(np.uint8)
    large = Image.fromarray(pixels).resize((1500, 1100), Image.Resampling.BICUBIC).convert("RGB")
    noise = np.random.default_rng(digit).integers(-40, 40, (1100, 1500, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    noisy = np.clip(np.asarray(large).astype(int) + noise, 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(out, "JPEG", quality=92, exif=exif)
    return out.getvalue()


def run_code_of_card(folder: Path, image: bytes) -> tuple[str, dict[str, float]]:
    """Return the output of both code blocks of an unpacked README.md for an image.
    An interpreter of their own runs them.
    """
    (folder / "cat.png").write_bytes(image)
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    told = (
        "import sys\njson.dump(dict(zip(config['classes'], probabilities[0].tolist())), "
        "sys.stdout)\n"
    )
    (folder / "card.py").write_text("\n".join([*blocks, told]))
    done = subprocess.run(
        [sys.executable, "card.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    label, probabilities = done.stdout.split("\n", 1)
    return label, json.loads(probabilities)
