"""The documents of the repository, and the commands and code in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def list_documents() -> list[str]:
    """Return all documents for people, as paths from the root."""
    found = [
        path for pattern in ("*.md", "docs/**/*.md", "bench/**/*.md") for path in ROOT.glob(pattern)
    ]
    found.append(ROOT / "client" / "README.md")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def read_blocks(document: str) -> list[tuple[str, str]]:
    """Return the language and text of each block of commands or Python."""
    text = (ROOT / document).read_text()
    return [(name, body) for name, body in _FENCE.findall(text) if name in ("sh", "python")]
