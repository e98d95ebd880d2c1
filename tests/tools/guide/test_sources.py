"""Documents at their places in the guide."""

import pytest

from tools.guide import sources

PLACES = {"README.md": "index.md", "docs/howto/a.md": "howto/a.md", "docs/b.md": "b.md"}


@pytest.mark.parametrize(
    ("document", "link", "rewritten"),
    [
        ("README.md", "[a](docs/howto/a.md#part)", "[a](howto/a.md#part)"),
        ("docs/howto/a.md", "[b](../b.md)", "[b](../b.md)"),
        ("docs/howto/a.md", "[start](../../README.md)", "[start](../index.md)"),
        ("docs/howto/a.md", "[a test](../../tests/test_a.py)", "a test"),
        ("docs/b.md", "[other](https://a.example/b.md)", "[other](https://a.example/b.md)"),
        ("docs/b.md", "[part](#part)", "[part](#part)"),
        ("docs/b.md", "```sh\n[a](howto/c.md)\n```", "```sh\n[a](howto/c.md)\n```"),
    ],
)
def test_a_link_is_right_at_the_place_of_its_document(
    document: str, link: str, rewritten: str
) -> None:
    assert sources.rewrite_document_links(link, document, PLACES) == rewritten


def test_the_content_of_list_items_is_indented_by_four_columns() -> None:
    text = "- a\n  b\n  1. c\n     d\n\n     ```\n     - e\n     ```\n- f\n\ng\n"
    deep = "- a\n    b\n    1. c\n        d\n\n        ```\n        - e\n        ```\n\n- f\n\ng\n"
    assert sources.indent_lists_by_four(text) == deep
