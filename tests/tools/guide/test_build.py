"""The guide as a whole: every document is in it, and a fault in one stops the build."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tools.guide import build
from tools.guide.pages import INDEX, find_faults_of_guide_pages
from tools.guide.sources import ROOT, find_guide_documents

MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guide") / "built"
    build.rebuild_guide_folder(folder)
    return folder


class _Text(HTMLParser):
    """The text of HTML, without white space."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.feed(source)

    def handle_data(self, data: str) -> None:
        self.parts += data.split()

    def __str__(self) -> str:
        return "".join(self.parts)


def get_guide_page(document: str) -> str:
    """Return the page of a document, as a path in the guide."""
    place = Path(find_guide_documents()[document]).with_suffix(".html")
    return str(place.with_name("index.html") if place.stem == "README" else place)


@pytest.mark.slow
def test_each_document_has_a_page_that_says_the_same_as_on_github(guide: Path) -> None:
    render = MarkdownIt("commonmark").enable("table").render
    differing = []
    for document in find_guide_documents():
        if not document.endswith(".md"):
            continue
        page = (guide / get_guide_page(document)).read_text()
        (shown,) = re.findall(r'<main id="main">(.*)<footer>', page, re.DOTALL)
        if str(_Text(shown)) != str(_Text(render((ROOT / document).read_text()))):
            differing.append(document)
    assert differing == []


def test_each_page_is_reached_from_the_first_one(guide: Path) -> None:
    (tree,) = re.findall(
        r'<nav id="contents".*?</nav>', (guide / "index.html").read_text(), re.DOTALL
    )
    linked = set(re.findall(r'href="(?:\./)?([^"]+)"', tree))
    assert linked == {page.relative_to(guide).as_posix() for page in guide.rglob("*.html")}


def test_no_page_loads_anything_of_another_host_or_has_inline_code(guide: Path) -> None:
    assert find_faults_of_guide_pages(guide) == []
    for name in ("guide.css", "search.js"):
        assert not re.search(r"//[a-z0-9-]+\.[a-z]", (guide / name).read_text())


def test_the_guide_is_small_and_its_index_has_the_text(guide: Path) -> None:
    files = [path for path in guide.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    assert "forgetting" in (guide / INDEX).read_text()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[here](howto/nowhere.md)", "page does not exist"),
        ("[here](howto/install.md#nowhere)", "anchor does not exist"),
        ("![a picture](https://example.org/a.png)", "leads to no file of the guide"),
    ],
)
def test_a_fault_in_a_document_stops_the_build(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_few(folder: Path) -> None:
        (folder / "howto").mkdir(parents=True)
        (folder / "howto" / "install.md").write_text("# Install\n")
        (folder / "index.md").write_text(f"# First\n\n{line}\n")

    monkeypatch.setattr(build, "copy_documents_as_guide_sources", copy_few)
    keep_pages(monkeypatch, tmp_path, lambda page: page in ("index.md", "howto/install.md"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "before.html").touch()
    with pytest.raises(SystemExit) as stopped:
        build.rebuild_guide_folder(tmp_path / "out")
    assert said in re.sub(r"\x1b\[[\d;]*m", "", str(stopped.value))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["before.html"]


def keep_pages(
    monkeypatch: pytest.MonkeyPatch, folder: Path, is_kept: Callable[[str], bool]
) -> None:
    """Let a build use settings whose navigation has only some of the documents."""
    lines = (build.HERE / "zensical.toml").read_text().splitlines(keepends=True)
    pages = {line: re.fullmatch(r'\s+"(.+\.md)",\n', line) for line in lines}
    kept = [line for line in lines if pages[line] is None or is_kept(pages[line][1])]
    (folder / "settings").mkdir()
    (folder / "settings" / "zensical.toml").write_text(re.sub(r" *{ \"[^\"]+\" = \[\s*\] },\n", "",
                                                              "".join(kept)))  # fmt: skip
    (folder / "settings" / "theme").symlink_to(build.HERE / "theme")
    monkeypatch.setattr(build, "HERE", folder / "settings")
