"""Makes `client/perennial/_sync` of `client/perennial/_async`: the same verbs without `async` and `await`.

    python -m tools.client_sync

So every verb is written once. `waiting.py` alone is written by hand on both sides. A test fails while `_sync`
is not what this writes.
"""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "client" / "perennial"
SOURCE, TARGET = PACKAGE / "_async", PACKAGE / "_sync"
BY_HAND = {"__init__.py", "waiting.py"}
CHANGES = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r", Awaitable\b|\bAwaitable, ", ""),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\ba(close|read|iter_bytes|iter_lines)\b", r"\1"),
    (r"\bIterator, Iterator\b", "Iterator"),
    (r"\bperennial\._async\b", "perennial._sync"),
)


def main() -> None:
    """Write all files."""
    for name, text in sources().items():
        file = TARGET / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


def sources() -> dict[str, str]:
    """What `_sync` holds, by path in it, without what is written by hand."""
    files = (file for file in sorted(SOURCE.rglob("*.py")) if str(file.relative_to(SOURCE)) not in BY_HAND)
    return {str(file.relative_to(SOURCE)): blocking(file.read_text()) for file in files}


def blocking(text: str) -> str:
    """The same module without `async` and `await`."""
    for pattern, by in CHANGES:
        text = re.sub(pattern, by, text)
    return text


if __name__ == "__main__":
    main()
