"""Whatever a document names is there: linked documents and headings, files of the repository,
modules that run.
"""

import re

import pytest
from documents import ROOT, list_documents

FOLDERS = (
    *(".ci", "api", "bench", "client", "core", "deploy"),
    *("docs", "migrations", "perennial_service", "tests", "tools", "worker"),
)
MADE_BY_THE_READER = {
    f"core/{path}.py"
    for path in ("ingest/readers/cpio", "export/formats/weights", "execution/kinds/rehash")
}
"""Files of the examples that how-tos add."""


def read_document(document: str) -> str:
    return (ROOT / document).read_text()


def list_anchors(document: str) -> set[str]:
    """Return the names by which headings are linked, as GitHub makes them."""
    outside = re.sub(r"^```.*?^```", "", read_document(document), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", list_documents())
def test_every_link_leads_to_a_document_and_a_heading(document: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", read_document(document)):
        path, _, heading = target.partition("#")
        if "://" in path:
            continue
        found = ((ROOT / document).parent / path).resolve() if path else ROOT / document
        name = str(found.relative_to(ROOT))
        if not found.exists() or (heading and heading not in list_anchors(name)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("document", list_documents())
def test_every_file_that_is_named_exists(document: str) -> None:
    start = "|".join(re.escape(folder) for folder in FOLDERS)
    named = set(re.findall(rf"`((?:{start})/[\w./-]*)`", read_document(document)))
    missing = {name for name in named - MADE_BY_THE_READER if not (ROOT / name).exists()}
    assert missing == set()


@pytest.mark.parametrize("document", list_documents())
def test_every_program_that_is_named_exists(document: str) -> None:
    modules = set(
        re.findall(r"\b((?:bench|tools|tests)(?:\.[a-z]\w*)+)\b(?!\()", read_document(document))
    )
    modules |= {
        path.removesuffix(".py")
        for path in re.findall(r"python (\w+/\S+\.py)", read_document(document))
    }
    missing = []
    for module in modules:
        file = ROOT / module.replace(".", "/")
        if not (file.with_suffix(".py").exists() or (file / "__main__.py").exists()):
            missing.append(module)
    assert missing == []


def test_the_index_names_every_document() -> None:
    links = re.findall(r"\]\(([^)#\s]+)", read_document("docs/README.md"))
    index = {(ROOT / "docs" / path).resolve() for path in links}
    pages = {(ROOT / name).resolve() for name in list_documents() if name.startswith("docs/")}
    left_out = {
        ROOT / "docs" / "README.md",
        *(ROOT / "docs" / "reference" / "methods").glob("*.md"),
    }
    assert pages - index - left_out == set()
