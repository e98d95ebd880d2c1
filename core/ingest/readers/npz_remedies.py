"""Lines of Python that convert an npz to a readable one, by its problem."""

import math
from collections.abc import Iterable

IMAGES = ("images", "test_images")
_ALIASES = {
    "images": ("x_train", "train_images", "train_x", "X_train", "X", "x", "data", "imgs"),
    "labels": ("y_train", "train_labels", "train_y", "Y_train", "y", "Y", "targets", "target"),
    "test_images": ("x_test", "test_x", "X_test"),
    "test_labels": ("y_test", "test_y", "Y_test"),
}
"""Our array → its names in published data sets (Keras, MedMNIST, scikit-learn)."""


def advise_on_npz_object_array(array: str) -> str:
    """Return advice on replacing an npz's object array, which is a pickle."""
    if array in ("labels", "test_labels", "classes"):
        change = f"{array}=d[{array!r}].astype(str)"
    elif array in IMAGES:
        change = f"{array}=np.stack(list(d[{array!r}])).astype('uint8')"
    else:
        return (
            "Leave it out, in Python, of a file that you trust: d = np.load('old.npz', "
            "allow_pickle=True); np.savez('new.npz', **{name: d[name] for name in d if "
            "d[name].dtype != object})"
        )
    more = "; images of several sizes are sent as files instead" if array in IMAGES else ""
    return (
        f"Convert it, in Python, of a file that you trust: "
        f"{_format_npz_conversion_code(change, ', allow_pickle=True')}{more}"
    )


def advise_on_npz_image_array(array: str, dtype_kind: str, shape: tuple[int, ...]) -> str:
    """Return advice on converting an npz's images of another type or shape, or ""."""
    expression = f"d[{array!r}]"
    # A row of pixels for each image, as MNIST is often stored.
    if len(shape) == 2 and math.isqrt(shape[1]) ** 2 == shape[1]:
        expression = f"{expression}.reshape(-1, {math.isqrt(shape[1])}, {math.isqrt(shape[1])})"
    # Channels first, as PyTorch has them.
    elif len(shape) == 4 and shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4):
        expression = f"{expression}.transpose(0, 2, 3, 1)"
    elif len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] not in (1, 3, 4)):
        return ""
    if dtype_kind == "f":
        expression = f"(255 * {expression}).round().astype('uint8')"
    elif dtype_kind in "iub":
        expression = f"{expression}.astype('uint8')"
    else:
        return ""
    scale = (
        " (floats are taken as 0 to 1: leave out 255 * where they are 0 to 255)"
        if dtype_kind == "f"
        else ""
    )
    return (
        f"Convert it, in Python: "
        f"{_format_npz_conversion_code(f'{array}=np.ascontiguousarray({expression})')}{scale}"
    )


def advise_on_npz_label_array(array: str, dtype_kind: str, shape: tuple[int, ...]) -> str:
    """Return advice on converting an npz's labels of another type or shape, or ""."""
    expression = f"d[{array!r}]"
    if len(shape) == 2:
        expression += ".argmax(1)" if shape[1] > 1 else ".reshape(-1)"
    elif len(shape) != 1:
        return ""
    if dtype_kind in "fb" and ".argmax" not in expression:
        expression += ".astype(int)"
    several = (
        " (one-hot rows; rows of several labels are not learned)" if ".argmax" in expression else ""
    )
    return f"Convert it, in Python: {_format_npz_conversion_code(f'{array}={expression}')}{several}"


def advise_on_npz_fortran_order_array(array: str) -> str:
    """Return advice on converting an npz's array from Fortran order to C order."""
    return f"Convert it, in Python: {_format_npz_conversion_code(f'{array}=np.ascontiguousarray(d[{array!r}])')}"


def advise_on_npz_array_names(names: Iterable[str]) -> str:
    """Return advice on renaming an npz's arrays, or "" if no usual name is among them."""
    present = set(names)
    alias_of = {
        ours: alias
        for ours, aliases in _ALIASES.items()
        if (alias := next((name for name in (ours, *aliases) if name in present), None))
    }
    if not {"images", "labels"} <= alias_of.keys():
        return ""
    pairs = [
        # Keras and MedMNIST have labels as a column, [N, 1].
        f"{ours}=d[{alias!r}]" + (".reshape(-1)" if "labels" in ours else "")
        for ours, alias in alias_of.items()
    ]
    return (
        f"Rename them, in Python: d = np.load('old.npz'); np.savez('new.npz', {', '.join(pairs)})"
    )


def _format_npz_conversion_code(change: str, how: str = "") -> str:
    return f"d = np.load('old.npz'{how}); np.savez('new.npz', **(dict(d) | dict({change})))"
