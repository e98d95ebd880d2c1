"""Documents of the repository, copied into the folder that Zensical reads.

The documents keep their paths below `docs`. Those of other folders get the places in `ELSEWHERE`. A
link to a file that is no document, such as a test, becomes its plain text: the guide does not have
that file.
"""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = "docs"
ELSEWHERE = {
    "README.md": "index.md",
    f"{DOCUMENTS}/README.md": "documents.md",
    "client/README.md": "reference/python-client.md",
    "bench/README.md": "design/bench.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Document → its place in the guide, if that is not its path below `docs`."""
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
_ITEM = re.compile(r"(?:- |\d+\. )")
_FENCE = re.compile(r"^(```.*?^```)$", re.DOTALL | re.MULTILINE)


def find_guide_documents() -> dict[str, str]:
    """Return the documents and pictures of the guide: path in the checkout → path in the guide."""
    files = (path for path in (ROOT / DOCUMENTS).rglob("*") if path.suffix in (".md", ".png"))
    names = sorted(path.relative_to(ROOT).as_posix() for path in files)
    places = {name: name.removeprefix(f"{DOCUMENTS}/") for name in names}
    return {**places, **ELSEWHERE}


def copy_documents_as_guide_sources(folder: Path) -> None:
    """Copy all documents into a folder as sources of the user guide."""
    places = find_guide_documents()
    for name, guide_path in places.items():
        target = folder / guide_path
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            text = rewrite_document_links((ROOT / name).read_text(), name, places)
            target.write_text(indent_lists_by_four(text))
        else:
            shutil.copy(ROOT / name, target)


def rewrite_document_links(text: str, name: str, places: dict[str, str]) -> str:
    """Rewrite the links in a document so that they are right in the user guide.

    Args:
        name: path of the document from the root.
        places: those of all documents.
    """
    source_folder = os.path.dirname(name)  # noqa: PTH120
    guide_folder = os.path.dirname(places[name]) or "."  # noqa: PTH120

    def rewrite_link(link: re.Match[str]) -> str:
        label, target = link.groups()
        path, mark, heading = target.partition("#")
        if not path or "://" in path:
            return link[0]
        guide_path = places.get(
            os.path.normpath(f"{source_folder}/{path}" if source_folder else path)
        )
        if guide_path is None:
            return label[1:-1]
        return f"{label}({os.path.relpath(guide_path, guide_folder)}{mark}{heading})"

    parts = _FENCE.split(text)  # every second one is a block of code, which has no links
    parts[::2] = (_LINK.sub(rewrite_link, part) for part in parts[::2])
    return "".join(parts)


def indent_lists_by_four(text: str) -> str:
    """Indent the content of list items in a Markdown document by four columns each.

    The documents indent it by the width of the item's mark, as GitHub reads it. Python-Markdown takes
    fewer than four columns for the end of the item, and sees the next item after one of several
    paragraphs only behind an empty line.
    """
    lines: list[str] = []
    columns: list[int] = []  # of the content of the list items around a line
    is_code = has_paragraphs = False
    for line in text.split("\n"):
        content = line.lstrip(" ")
        indent = len(line) - len(content)
        if content and not is_code:
            while columns and indent < columns[-1]:
                columns.pop()
        begin = columns[-1] if columns else 0
        content = line[begin:]
        if content.lstrip(" ").startswith("```"):
            is_code = not is_code
        mark = None if is_code else _ITEM.match(content)
        if mark and has_paragraphs and lines[-1]:
            lines.append("")
        has_paragraphs = not mark and (has_paragraphs or not content)
        lines.append(f"{' ' * 4 * len(columns)}{content}" if content.strip() else "")
        if mark:
            columns.append(begin + mark.end())
    return "\n".join(lines)
