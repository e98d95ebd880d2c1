"""The README stays short, and its first result comes early."""

from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_it_is_read_in_two_screens() -> None:
    assert len(README.splitlines()) <= 110


def test_the_first_command_comes_after_a_sentence_and_a_picture() -> None:
    before = README.split("```sh\n")[0]
    assert len(before.split()) <= 100 and "![" in before
