"""The programs of the client's README run as they stand, one after the other."""

import re
import zipfile
from pathlib import Path

import pytest

from perennial import AsyncPerennial, Perennial
from tools import service

ROOT = Path(__file__).parents[2]
README = (ROOT / "client" / "README.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_every_program_runs(
    running: service.RunningService,
    archives: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for week, archive in zip((31, 32), archives, strict=False):
        (tmp_path / f"week-{week}.zip").write_bytes(archive)
    with zipfile.ZipFile(tmp_path / "week-31.zip") as first:
        first.extractall(tmp_path / "photos")
        for name in ("bird.png", "owl.jpg"):
            (tmp_path / name).write_bytes(first.read(first.namelist()[0]))
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)
    said = []
    for program in PROGRAMS:
        exec(program.replace('"birds"', '"readme"'), {"__name__": "__main__"})
        said.append(capsys.readouterr().out)
    assert re.fullmatch(r"[0-9a-f]{64}\n", said[0])
    assert "1 published" in said[2] and "bird.png 0 " in said[2]
    assert "succeeded" in said[3]


def test_the_table_names_every_verb() -> None:
    client = Perennial("key", base_url="http://127.0.0.1:9")
    rows = dict(re.findall(r"^\| (`client[^|]*) \| ([^|]*) \|$", README, re.MULTILINE))
    found = {}
    for names, verbs in rows.items():
        owners = re.findall(r"`client\.?(\w*)`", names)
        parts = re.findall(r"`([^`]*)`", verbs)
        for owner, words in zip(
            owners, parts * len(owners) if len(parts) == 1 else parts, strict=True
        ):
            found[owner] = set(words.split())
    there = {
        name: _list_verbs(part)
        for name, part in vars(client).items()
        if _list_verbs(part) and name[0] != "_"
    }
    there.pop("connection", None)
    assert found == {**there, "": _list_verbs(client) - {"close"}}


def _list_verbs(part: object) -> set[str]:
    return {
        name for name in dir(type(part)) if name[0] != "_" and callable(getattr(type(part), name))
    }


def test_both_clients_have_the_same_verbs() -> None:
    awaited = {name for name in dir(AsyncPerennial) if name[0] != "_" and name != "aclose"}
    assert _list_verbs(Perennial("k", base_url="http://x")) - {"close"} == awaited
