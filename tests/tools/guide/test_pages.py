"""Checks of finished pages, each with a page that fails it."""

from pathlib import Path

import pytest

from tools.guide import pages

PAGE = '<nav id="contents"><a href="a.html">A</a><a href="b.html">B</a></nav><h1 id="top">A</h1>{}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pages without a fault."""
    for name in ("a.html", "b.html"):
        (tmp_path / name).write_text(PAGE.format('<a href="b.html#top">B</a> <a href="#top"></a>'))
    return tmp_path


def test_pages_without_a_fault_pass(folder: Path) -> None:
    assert pages.find_faults_of_guide_pages(folder) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('<a href="c.html"></a>', "a.html: c.html leads to no file of the guide"),
        ('<a href="b.html#c"></a>', "a.html: b.html#c leads to no heading"),
        ('<a href="#c"></a>', "a.html: #c leads to no heading"),
        ('<a href="../../secret"></a>', "a.html: ../../secret leads to no file of the guide"),
        ('<a href="ftp://a.example/"></a>', "a.html: ftp://a.example/ leads to no file"),
        ('<img src="https://a.example/a.png">', "https://a.example/a.png leads to no file"),
        ('<link href="//a.example/a.css">', "a.html: //a.example/a.css leads to no file"),
        ("<script>alert(1)</script>", "a.html: <script> without a file"),
        ("<style>p{}</style>", "a.html: <style> without a file"),
        ('<p style="color: red">', 'a.html: style="color: red"'),
        ('<p onclick="alert(1)">', 'a.html: onclick="alert(1)"'),
        ('<a href="javascript:alert(1)">', 'a.html: href="javascript:alert(1)"'),
    ],
)
def test_a_fault_is_named_with_its_page(folder: Path, content: str, said: str) -> None:
    (folder / "a.html").write_text(PAGE.format(content))
    assert any(said in fault for fault in pages.find_faults_of_guide_pages(folder))


def test_a_link_to_another_site_is_followed_by_a_person_and_passes(folder: Path) -> None:
    (folder / "a.html").write_text(PAGE.format('<a href="https://a.example/"></a>'))
    assert pages.find_faults_of_guide_pages(folder) == []


def test_a_page_outside_the_navigation_is_named(folder: Path) -> None:
    (folder / "c.html").write_text(PAGE.format(""))
    assert pages.find_faults_of_guide_pages(folder) == [
        "c.html is not in the navigation: zensical.toml"
    ]


def test_a_table_scrolls_and_aligns_its_columns_by_a_class() -> None:
    table = '<table><td style="text-align: right;"><code>a\\|b</code></td></table>'
    assert pages.make_tables_scrollable(table) == (
        '<div class="table" tabindex="0"><table><td class="num"><code>a|b</code></td></table></div>'
    )


def test_the_text_of_a_section_has_neither_tags_nor_entities() -> None:
    assert pages.extract_html_text("<p>a <code>&lt;b&gt;</code>\n c</p>") == "a <b> c"
