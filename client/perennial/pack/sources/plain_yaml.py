"""A parser for the YAML subset of YOLO's data.yaml: top-level texts, lists, and maps of names."""

import re

from perennial.pack.errors import PackError
from perennial.pack.text import quote_name

Value = str | list[str] | dict[str, str]
_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:(?:\s+(.*))?")
_MAPPED = re.compile(r"""("[^"]*"|'[^']*'|[^\s:'"][^:'"]*?)\s*:\s+(.+)""")
_ITEM = re.compile(
    r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,'"\[\]{}][^,\[\]{}]*?)\s*)?(,|\Z)"""
)


def parse_simple_yaml(text: str, where: str) -> dict[str, Value]:
    """Parse the simple subset of YAML in data.yaml: top-level texts, lists and maps.

    Raises:
        PackError: a line cannot be parsed.
    """
    values: dict[str, Value] = {}
    for key, first, following_lines in _split_top_level_blocks(text, where):
        value = _parse_yaml_value(first, following_lines, f"The entry {quote_name(key)} of {where}")
        if value is not None:
            values[key] = value
    return values


def _split_top_level_blocks(text: str, where: str) -> list[tuple[str, str, list[str]]]:
    """Split YAML text into top-level entries: key, rest of its line, lines that belong to it."""
    blocks: list[tuple[str, str, list[str]]] = []
    # Windows editors begin the file with a byte order mark.
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        yaml_line = _strip_yaml_comment(raw).rstrip()
        if not yaml_line or yaml_line in ("---", "..."):
            continue
        key = _KEY.fullmatch(yaml_line)
        if key:
            blocks.append((key[1], (key[2] or "").strip(), []))
        # YAML lets items begin without indentation, and a list close on a line of its own.
        elif blocks and (yaml_line[0] in " \t-]"):
            blocks[-1][2].append(yaml_line.strip())
        else:
            raise PackError(
                f"Line {number} of {where} is {quote_name(raw)}; what is read are lines such as "
                "“train: images/train”, “names: [cat, dog]”, and lists below a key."
            )
    return blocks


def _parse_yaml_value(first: str, following_lines: list[str], where: str) -> Value | None:
    if first.startswith("["):
        list_text = " ".join([first, *following_lines])
        if not list_text.endswith("]"):
            raise PackError(f"{where} opens a list with “[” and does not close it.")
        return _parse_yaml_flow_list(list_text[1:-1], where)
    if first.startswith("{") and first.endswith("}"):
        pairs = [_MAPPED.fullmatch(item) for item in _parse_yaml_flow_list(first[1:-1], where)]
        return {_parse_yaml_scalar(pair[1]): _parse_yaml_scalar(pair[2]) for pair in pairs if pair}
    if first:
        return _parse_yaml_scalar(first)
    if following_lines and all(
        item_line == "-" or item_line.startswith("- ") for item_line in following_lines
    ):
        return [_parse_yaml_scalar(item_line[1:].strip()) for item_line in following_lines]
    mapped = [_MAPPED.fullmatch(item_line) for item_line in following_lines]
    if following_lines and all(mapped):
        return {_parse_yaml_scalar(pair[1]): _parse_yaml_scalar(pair[2]) for pair in mapped if pair}
    return None if following_lines else ""


def _parse_yaml_flow_list(text: str, where: str) -> list[str]:
    """Parse the items of a YAML list in brackets."""
    items, at = [], 0
    while at < len(text.rstrip()):
        item = _ITEM.match(text, at)
        if not item:
            raise PackError(
                f"{where} has a list that is not understood from {quote_name(text[at:].strip())} "
                f"on."
            )
        if item[1] is not None:
            items.append(_parse_yaml_scalar(item[1]))
        at = item.end()
    return items


def _parse_yaml_scalar(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r'\\(["\\/])', r"\1", text[1:-1])
    return text


def _strip_yaml_comment(line: str) -> str:
    """Remove the comment from a line of YAML: `#` at the start or after a blank, outside quotes."""
    quote = ""
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        # Elsewhere it is an apostrophe within a word.
        elif character in "'\"" and (at == 0 or line[at - 1] in " \t[,{:-"):
            quote = character
        elif character == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at]
    return line
