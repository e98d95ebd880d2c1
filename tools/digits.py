"""scikit-learn's digits (1,797 real 8×8 images) as five zip archives of two classes each."""

import io
import zipfile

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def build_digit_archives(*, signed: bool = False) -> list[tuple[str, bytes]]:
    """Return five `(task name, zip bytes)`: digits 0–1, 2–3, 4–5, 6–7, 8–9 as PNG in `<class>/…`.

    Args:
        signed: make about half of the images of each digit negatives, dark on white, drawn by a
            fixed seed. Then no single pixel distinguishes two digits, and a network must learn
            more.
    """
    images, labels = load_digits(return_X_y=True)
    pixels = np.rint(images.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    if signed:
        negative = np.random.default_rng(0).random(len(pixels)) < 0.5
        pixels[negative] = 255 - pixels[negative]
    return [
        (f"digits-{d}-{d + 1}", _zip_images_by_class(pixels, labels, (d, d + 1)))
        for d in range(0, 10, 2)
    ]


def _zip_images_by_class(pixels: np.ndarray, labels: np.ndarray, classes: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for index in np.flatnonzero(np.isin(labels, classes)):
            png = io.BytesIO()
            Image.fromarray(pixels[index]).save(png, "PNG")
            # A fixed time keeps the archive's bytes, and so its digest, the same in every call.
            name = zipfile.ZipInfo(f"{labels[index]}/{index:04d}.png", (2000, 1, 1, 0, 0, 0))
            archive.writestr(name, png.getvalue())
    return buffer.getvalue()
