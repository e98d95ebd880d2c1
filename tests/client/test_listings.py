"""Options of every listing: columns, CSV, one value a line, headings, and JSON through jq."""

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import stub

from perennial.cli.main import COMMANDS, cli, run_command_line

KEY = {
    "id": "key_1",
    "name": "ci, nightly",
    "owner": "team",
    "scope": "write",
    "prefix": "abc",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
    "created_at": "2026-11-23T14:35:00Z",
    "bound": None,
}
KEYS = [KEY, {**KEY, "id": "key_2", "name": "page", "expires_at": "2027-01-31T23:59:59Z"}]
JQ = """#!{python}
import json, sys
print(sys.argv[-1].strip(), *(one["name"] for one in json.load(sys.stdin)), sep="\\n")
"""
LISTINGS = ("list", "audit", "usage", "methods", "architectures", "compare", "metrics", "predict", "diff", "deliveries",
            "issues", "evaluate")  # fmt: skip
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[stub.Stub]:
    with stub.run_stub(lambda _: stub.Said(body={"items": KEYS, "next_cursor": None})) as found:
        monkeypatch.setenv("PERENNIAL_URL", found.url)
        monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
        yield found


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (
            "",
            "key_1\tci, nightly\tteam\twrite\tfor ever\nkey_2\tpage\tteam\twrite\t2027-01-31 23:59 "
            "UTC\n",
        ),
        ("--columns name,key", "ci, nightly\tkey_1\npage\tkey_2\n"),
        ("--columns valid-until --headers", "valid until\nfor ever\n2027-01-31 23:59 UTC\n"),
        ("--csv --columns name,Key", 'name,key\n"ci, nightly",key_1\npage,key_2\n'),
        ("--csv --no-headers --columns name", '"ci, nightly"\npage\n'),
        ("-q", "key_1\nkey_2\n"),
        ("-q --columns name", "ci, nightly\npage\n"),
    ],
)
def test_rows_are_printed_in_the_form_that_was_asked_for(
    capsys: Said, options: str, shown: str
) -> None:
    assert run_command_line(["keys", "list", *options.split()]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--columns secret",
            "There is no column 'secret'. Possible are key, name, owner, scope, valid until.",
        ),
        ("--columns ,", "names no column"),
        ("--csv -q", "--csv and --quiet exclude each other"),
        ("--json --csv", "--json and --csv exclude each other"),
        ("--json --columns key", "take --jq"),
    ],
)
def test_options_that_cannot_be_are_told_before_the_service_is_asked(
    capsys: Said, service: stub.Stub, options: str, said: str
) -> None:
    assert run_command_line(["keys", "list", *options.split()]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert service.asked == []


def test_every_listing_takes_the_same_options() -> None:
    lacking = []
    for path, command in iterate_commands():
        names = {one.name for one in command.params}
        if (
            path.split()[-1] in LISTINGS
            and not {"columns", "is_csv", "is_quiet", "has_headers", "jq"} <= names
        ):
            lacking.append(path)
        assert {"jq", "is_json"} <= names, path
    assert lacking == []


def iterate_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command of the client with its name."""
    context = click.Context(cli)
    assert isinstance(cli, click.Group)
    for name in COMMANDS:
        found = cli.get_command(context, name)
        assert found is not None
        inner = found.commands.items() if isinstance(found, click.Group) else [("", found)]
        yield from ((f"{name} {one}".strip(), command) for one, command in inner)


def test_csv_reads_back_what_holds_commas_and_quotes(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEY, "name", 'a "b", c')
    assert run_command_line(["keys", "list", "--csv"]) == 0
    assert next(csv.DictReader(io.StringIO(capsys.readouterr().out)))["name"] == 'a "b", c'


def test_json_goes_through_the_program_jq(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_jq(tmp_path, JQ.format(python=sys.executable))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_command_line(["keys", "list", "--jq", ".[].name"]) == 0
    assert capsys.readouterr().out == ".[].name\nci, nightly\npage\n"


@pytest.mark.parametrize(
    ("ending", "status"),
    [("sys.exit(3)", 2), ("sys.exit(5)", 1)],
    ids=["no expression", "it does not fit"],
)
def test_what_jq_finds_wrong_is_told_on_a_line(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: str, status: int
) -> None:
    write_jq(
        tmp_path,
        f"#!{sys.executable}\nimport sys\nprint('jq:', 'bad\\x1b[2J', file=sys.stderr)\n{ending}\n",
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_command_line(["keys", "list", "--jq", ".["]) == status
    told = capsys.readouterr().err
    assert "--jq '.[': jq: bad" in told and "\x1b" not in told


def test_without_jq_the_option_says_so(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_command_line(["keys", "list", "--jq", "."]) == 2
    assert "needs the program jq, which is not on this machine" in capsys.readouterr().err


def write_jq(folder: Path, text: str) -> None:
    """Write a stand-in for jq."""
    file = folder / "jq"
    file.write_text(text)
    file.chmod(0o755)


def list_requests_by_method(service: stub.Stub, method: str) -> list[Any]:
    """Return the bodies, or else the paths, of the requests with a method."""
    return [
        json.loads(one.body) if one.body else one.path
        for one in service.asked
        if one.method == method
    ]


def test_a_key_is_revoked_by_the_name_of_one_valid_key(capsys: Said, service: stub.Stub) -> None:
    assert run_command_line(["keys", "revoke", "page"]) == 0
    assert capsys.readouterr().out == "Key key_2 (page) is revoked.\n"
    assert list_requests_by_method(service, "DELETE") == ["/v1/keys/key_2"]


def test_a_name_of_several_keys_is_told_with_their_ids_and_one_of_none_is_not_found(
    capsys: Said, service: stub.Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEYS[1], "name", KEY["name"])
    assert run_command_line(["keys", "revoke", "ci, nightly"]) == 2
    assert capsys.readouterr().err == (
        "2 have the name 'ci, nightly'; say the id of one:\n"
        "  key_1, made 2026-11-23 14:35 UTC\n  key_2, made 2026-11-23 14:35 UTC\n"
    )
    assert run_command_line(["keys", "revoke", "nobody"]) == 3
    monkeypatch.setitem(KEYS[1], "revoked_at", "2026-11-24T00:00:00Z")
    assert run_command_line(["keys", "revoke", "ci, nightly"]) == 0, "a revoked key does not count"
    assert list_requests_by_method(service, "DELETE") == ["/v1/keys/key_1"]


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        (["keys", "create", "ci", "--expires", "2027-01-31"], "2027-01-31T23:59:59Z"),
        (["keys", "create", "ci", "--expires", "2027-01-31T08:00"], "2027-01-31T08:00:00Z"),
        (
            ["keys", "create", "ci", "--expires", "2027-01-31T08:00:00+02:00"],
            "2027-01-31T06:00:00Z",
        ),
        (["audit", "--since", "2026-11-01"], "2026-11-01T00%3A00%3A00Z"),
    ],
)
def test_a_date_is_a_moment(service: stub.Stub, arguments: list[str], parameter: str) -> None:
    run_command_line(arguments)
    assert parameter in service.asked[0].path + service.asked[0].body.decode()


@pytest.mark.parametrize("text", ["tomorrow", "2027-13-01", "30x", "9999999w"])
def test_what_is_no_moment_is_told_with_what_is_one(
    capsys: Said, service: stub.Stub, text: str
) -> None:
    assert run_command_line(["keys", "create", "ci", "--expires", text]) == 2
    assert "write it such as 30d, 12h, 2027-01-31" in " ".join(capsys.readouterr().err.split())
    assert service.asked == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("modls list", "`perennial models`"),
        ("sumbit birds x.zip", "`perennial submit`"),
        ("models delete birds", "`perennial models rm`"),
        ("jobs ls", "`perennial jobs list`"),
        ("keys revok ci", "`perennial keys revoke`"),
    ],
)
def test_a_typo_of_a_command_gets_the_nearest_suggested(
    capsys: Said, typed: str, meant: str
) -> None:
    assert run_command_line(typed.split()) == 2
    assert f"Did you mean {meant}" in capsys.readouterr().err


def test_a_command_that_is_near_to_none_gets_no_suggestion(capsys: Said) -> None:
    assert run_command_line(["frobnicate"]) == 2
    told = capsys.readouterr().err
    assert "There is no command 'frobnicate'." in told and "mean" not in told
