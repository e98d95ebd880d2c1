"""Pages of the guide after Zensical has made them: checked, searchable, and right for strict headers.

The service sends the guide with a policy that allows no inline style and nothing of other hosts
(`api/description/guide.py`). The checks here do not rely on Zensical's own.
"""

import html
import json
import re
import shutil
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

INDEX = "search-index.js"
UNUSED = ("assets", "search.json", "sitemap.xml", "404.html")
"""Parts of Zensical's own theme, which the guide replaces."""
_TAG = re.compile(r"</?[a-z][^>]*>")
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_LINKED = {"a": "href", "link": "href", "img": "src", "script": "src"}


@dataclass
class GuidePageLinkCollector(HTMLParser):
    """Collects the links and anchors of an HTML page, and violations of the content policy.

    Attributes:
        anchors: values of `id`.
        targets: pairs of tag and target, as they are written.
        in_tree: targets of the navigation's tree.
        faults: attributes that the policy forbids.
    """

    anchors: set[str] = field(default_factory=set)
    targets: list[tuple[str, str]] = field(default_factory=list)
    in_tree: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    is_tree: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record links, anchors and forbidden attributes of an HTML tag."""
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "nav":
            self.is_tree = values.get("id") == "contents"
        if tag in _LINKED and _LINKED[tag] in values:
            self.targets.append((tag, values[_LINKED[tag]]))
            if self.is_tree:
                self.in_tree.add(values[_LINKED[tag]])
        if tag == "style" or (tag == "script" and "src" not in values):
            self.faults.append(f"<{tag}> without a file")
        self.faults += [
            f'{name}="{value}"'
            for name, value in attrs
            if name == "style" or name.startswith("on") or "javascript:" in (value or "")
        ]


def rewrite_pages_and_delete_unused_files(folder: Path) -> None:
    """Make tables in the guide's HTML pages scrollable, write the search index, and delete files
    that the guide does not use.
    """
    for page in folder.rglob("*.html"):
        page.write_text(make_tables_scrollable(page.read_text()))
    index = json.loads((folder / "search.json").read_text())["items"]
    sections = [
        [
            one["location"],
            *map(extract_html_text, (one["title"], " · ".join(one["path"]), one["text"])),
        ]
        for one in index
    ]
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in sections)
    (folder / INDEX).write_text(f"var guideSections = [\n{lines}\n];\n")
    for name in UNUSED:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def make_tables_scrollable(text: str) -> str:
    """Make tables and code blocks of an HTML page scroll by themselves, also by keyboard.

    Columns are aligned by classes, and a heading of a table without text is an ordinary cell.
    """
    text = text.replace(' style="text-align: right;"', ' class="num"')
    text = re.sub(r' style="text-align: (?:left|center);"', "", text)
    # In a table, Markdown needs `\|` for a bar in code, and Python-Markdown keeps the backslash.
    text = _CELL.sub(lambda cell: cell[0].replace(r"\|", "|"), text)
    text = re.sub(r"<th([^>]*)></th>", r"<td\1></td>", text).replace("<pre>", '<pre tabindex="0">')
    text = text.replace("<table>", '<div class="table" tabindex="0"><table>')
    return text.replace("</table>", "</table></div>")


def extract_html_text(fragment: str) -> str:
    """Extract the text of an HTML fragment, with white space as single spaces."""
    return " ".join(html.unescape(_TAG.sub(" ", fragment)).replace(r"\|", "|").split())


def find_faults_of_guide_pages(folder: Path) -> list[str]:
    """Return the faults of the guide's HTML pages, such as broken links and inline scripts.

    A link must lead to a file of the guide and to an anchor in it, or be one that a person follows to
    another site. No page may load anything of another host, or have inline code or style. Each page
    must be in the navigation.
    """
    folder = folder.resolve()
    pages = {page: _read_page_links(page) for page in sorted(folder.rglob("*.html"))}
    # All pages of a folder have the same navigation.
    find_file = cache(lambda place, path: (place / unquote(path)).resolve())
    files = {path for path in folder.rglob("*") if path.is_file()}
    faults: list[str] = []
    reachable: set[Path] = set()
    for page, links in pages.items():
        name = page.relative_to(folder).as_posix()
        faults += [f"{name}: {fault}" for fault in links.faults]
        for tag, target in links.targets:
            if re.match(r"https?:|mailto:", target) and tag == "a":
                continue
            path, _, anchor = target.partition("#")
            file = find_file(page.parent, path) if path else page
            if ":" in path or file not in files:
                faults.append(f"{name}: {target} leads to no file of the guide")
            elif anchor and file in pages and unquote(anchor) not in pages[file].anchors:
                faults.append(f"{name}: {target} leads to no heading")
        reachable |= {find_file(page.parent, target) for target in links.in_tree}
    faults += [
        f"{page.relative_to(folder).as_posix()} is not in the navigation: zensical.toml"
        for page in pages
        if page not in reachable
    ]
    return faults


def _read_page_links(page: Path) -> GuidePageLinkCollector:
    links = GuidePageLinkCollector()
    links.feed(page.read_text())
    return links
