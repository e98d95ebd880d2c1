"""The batches of `tools.digits` with fewer images, so that commands of the documents learn them
quickly.
"""

import io
import zipfile

from tools import digits

PER_CLASS = 60


def build_few_archives() -> list[tuple[str, bytes]]:
    """Return what `tools.digits.build_digit_archives` returns, with the first images of each class."""
    return [(name, _keep_few_images(archive)) for name, archive in digits.build_digit_archives()]


def _keep_few_images(archive: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(out, "w") as to:
        names = source.namelist()
        for label in sorted({name.partition("/")[0] for name in names}):
            for name in [name for name in names if name.startswith(f"{label}/")][:PER_CLASS]:
                to.writestr(name, source.read(name))
    return out.getvalue()
