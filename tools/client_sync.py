"""Write the client's generated modules: its blocking methods, and the formats of uploads.

    python -m tools.client_sync

`client/perennial/_formats.py` has the formats of `core/ingest/readers/registry.py`.
`client/perennial/_sync` is `client/perennial/_async` without `async` and `await`, so that every
method is written once; only `waiting.py` and `pages.py` are written by hand on both sides. A test
fails if a module differs from the output of this tool.
"""

import re
from pathlib import Path

from core.ingest.readers.registry import FORMATS

PACKAGE = Path(__file__).resolve().parent.parent / "client" / "perennial"
SOURCE, TARGET = PACKAGE / "_async", PACKAGE / "_sync"
FORMATS_COPY = PACKAGE / "_formats.py"
FORMATS_HEAD = '''"""The upload formats of the service of this version. \
Written by `python -m tools.client_sync` from its readers: change nothing here."""

from perennial.formats import UploadFormat, UploadFormats

'''
# They differ in more than keywords: for example, a blocking list caches its first page.
BY_HAND = {"__init__.py", "pages.py", "waiting.py"}
CHANGES = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r", Awaitable\b|\bAwaitable, ", ""),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\ba(close|read|iter_bytes|iter_lines)\b", r"\1"),
    # AsyncIterator and Iterator have become the same name.
    (r"\bIterator, Iterator\b", "Iterator"),
    (r"\bperennial\._async\b", "perennial._sync"),
)


def main() -> None:
    """Write all generated modules of the client."""
    for name, text in generate_blocking_modules().items():
        file = TARGET / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    FORMATS_COPY.write_text(render_formats_module())


def render_formats_module() -> str:
    """Render the client's module `_formats.py` with all upload formats."""
    lines = (f"        UploadFormat({one.endings!r}, {one.marks!r}),\n" for one in FORMATS.each)
    return f"{FORMATS_HEAD}FORMATS = UploadFormats(\n    (\n{''.join(lines)}    )\n)\n"


def generate_blocking_modules() -> dict[str, str]:
    """Generate the client's blocking modules (`_sync`) from its asynchronous ones, by path."""
    files = (
        file
        for file in sorted(SOURCE.rglob("*.py"))
        if str(file.relative_to(SOURCE)) not in BY_HAND
    )
    return {
        str(file.relative_to(SOURCE)): convert_source_to_sync(file.read_text()) for file in files
    }


def convert_source_to_sync(text: str) -> str:
    """Convert asynchronous source code to blocking code, without `async` and `await`."""
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    return text


if __name__ == "__main__":
    main()
