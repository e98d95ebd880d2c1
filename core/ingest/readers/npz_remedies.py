"""The two lines of Python that make an npz readable, by what is wrong with it."""

import math
from collections.abc import Iterable

IMAGES = ("images", "test_images")
_ALIASES = {
    "images": ("x_train", "train_images", "train_x", "X_train", "X", "x", "data", "imgs"),
    "labels": ("y_train", "train_labels", "train_y", "Y_train", "y", "Y", "targets", "target"),
    "test_images": ("x_test", "test_x", "X_test"),
    "test_labels": ("y_test", "test_y", "Y_test"),
}
"""Our array → what data sets in circulation call it (Keras, MedMNIST, scikit-learn)."""


def convert_object(array: str) -> str:
    """Of an object array, which is a pickle."""
    if array in ("labels", "test_labels", "classes"):
        change = f"{array}=d[{array!r}].astype(str)"
    elif array in IMAGES:
        change = f"{array}=np.stack(list(d[{array!r}])).astype('uint8')"
    else:
        return (
            "Leave it out, in Python, of a file that you trust: d = np.load('old.npz', allow_pickle=True); "
            "np.savez('new.npz', **{name: d[name] for name in d if d[name].dtype != object})"
        )
    more = "; images of several sizes are sent as files instead" if array in IMAGES else ""
    return f"Convert it, in Python, of a file that you trust: {_lines(change, ', allow_pickle=True')}{more}"


def convert_images(array: str, dtype_kind: str, shape: tuple[int, ...]) -> str:
    """Of images of another type or shape; empty where nothing can be said."""
    found = f"d[{array!r}]"
    if len(shape) == 2 and math.isqrt(shape[1]) ** 2 == shape[1]:
        found = f"{found}.reshape(-1, {math.isqrt(shape[1])}, {math.isqrt(shape[1])})"
    elif len(shape) == 4 and shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4):
        found = f"{found}.transpose(0, 2, 3, 1)"
    elif len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] not in (1, 3, 4)):
        return ""
    if dtype_kind == "f":
        found = f"(255 * {found}).round().astype('uint8')"
    elif dtype_kind in "iub":
        found = f"{found}.astype('uint8')"
    else:
        return ""
    scale = (
        " (floats are taken as 0 to 1: leave out 255 * where they are 0 to 255)" if dtype_kind == "f" else ""
    )
    return f"Convert it, in Python: {_lines(f'{array}=np.ascontiguousarray({found})')}{scale}"


def convert_labels(array: str, dtype_kind: str, shape: tuple[int, ...]) -> str:
    """Of labels of another type or shape; empty where nothing can be said."""
    found = f"d[{array!r}]"
    if len(shape) == 2:
        found += ".argmax(1)" if shape[1] > 1 else ".reshape(-1)"
    elif len(shape) != 1:
        return ""
    if dtype_kind in "fb" and ".argmax" not in found:
        found += ".astype(int)"
    several = " (one-hot rows; rows of several labels are not learned)" if ".argmax" in found else ""
    return f"Convert it, in Python: {_lines(f'{array}={found}')}{several}"


def convert_order(array: str) -> str:
    """Of an array in Fortran order."""
    return f"Convert it, in Python: {_lines(f'{array}=np.ascontiguousarray(d[{array!r}])')}"


def rename(names: Iterable[str]) -> str:
    """Of arrays that are called otherwise; empty where no usual name is among them."""
    there = set(names)
    found = {
        ours: alias
        for ours, aliases in _ALIASES.items()
        if (alias := next((name for name in (ours, *aliases) if name in there), None))
    }
    if not {"images", "labels"} <= found.keys():
        return ""
    pairs = [
        f"{ours}=d[{alias!r}]" + (".reshape(-1)" if "labels" in ours else "") for ours, alias in found.items()
    ]
    return f"Rename them, in Python: d = np.load('old.npz'); np.savez('new.npz', {', '.join(pairs)})"


def _lines(change: str, how: str = "") -> str:
    return f"d = np.load('old.npz'{how}); np.savez('new.npz', **(dict(d) | dict({change})))"
