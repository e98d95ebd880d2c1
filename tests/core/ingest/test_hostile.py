"""Every attack of the corpus is answered by its typed error, which names the entry."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hostile_corpus
import numpy as np
import pytest
from hostile_corpus import Attack

from core.errors import PerennialError
from core.ingest.inspect import ArchiveSummary
from core.ingest.limits import ArchiveLimits

ATTACKS = hostile_corpus.list_attacks()
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("attack", ATTACKS, ids=[a.name for a in ATTACKS])
def test_an_attack_is_refused_with_an_error_that_names_the_entry(
    attack: Attack, look: Callable[..., ArchiveSummary]
) -> None:
    data = attack.build()
    with pytest.raises(PerennialError) as caught:
        look(data, attack.content_type)
    assert caught.value.code in attack.code.split("|"), caught.value.detail
    assert 400 <= caught.value.status < 500
    assert any(text in caught.value.detail for text in attack.entry.split("|")), caught.value.detail
    assert len(caught.value.detail) < 400
    assert caught.value.detail.isprintable()


@pytest.mark.slow
def test_labels_that_unpack_a_thousandfold_are_refused_in_little_memory(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (500_000, 1, 1), dtype=np.uint8)
    labels = hostile_corpus.build_npy(np.zeros(500_000, "<U100"))
    path = tmp_path / "labels.npz"
    path.write_bytes(hostile_corpus.build_npz({"images": images, "labels": labels}, 8))
    assert run_in_bounds(path, "npz", 48) == "archive-too-large"


def test_the_corpus_has_a_name_for_every_attack(hostile_archives: list[Attack]) -> None:
    assert len({attack.name for attack in hostile_archives}) == len(hostile_archives) > 70


def test_limits_name_what_is_too_large(look: Callable[..., ArchiveSummary]) -> None:
    data = hostile_corpus.build_zip(hostile_corpus.draw_pictures(5))
    cases = ({"entries": 9}, {"unpacked_bytes": 900}, {"classes": 1}, {"body_bytes": 100})
    for limits in cases:
        with pytest.raises(PerennialError) as caught:
            look(data, **limits)
        assert caught.value.code == "archive-too-large"


def test_an_honest_zip64_is_accepted(look: Callable[..., ArchiveSummary]) -> None:
    assert look(hostile_corpus.build_zip64()).n_train == 8


BOUNDED = """
import resource, sys, time
from pathlib import Path
import core.ingest.inspect as inspect
from core.errors import PerennialError
from core.ingest.limits import ArchiveLimits
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (int(sys.argv[3]) << 20),) * 2)
try:
    path, media_type = Path(sys.argv[1]), sys.argv[2]
    print(inspect.summarise_archive_and_digest_content(path, media_type, ArchiveLimits()).n_train)
except PerennialError as error:
    print(error.code)
"""


def run_in_bounds(path: Path, kind: str, megabytes: int) -> str:
    command = [sys.executable, "-c", BOUNDED, str(path), kind, str(megabytes)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_a_million_empty_entries_are_refused_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "million.zip"
    path.write_bytes(hostile_corpus.build_million_empty_entries())
    assert run_in_bounds(path, "zip", 24) == "archive-too-large"


@pytest.mark.slow
def test_a_gzip_bomb_is_refused_in_little_memory(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "bomb.tar.gz"
    with gzip.open(path, "wb", 9) as file:
        file.write(hostile_corpus.build_tar_header(b"cat/a.png", 8 << 30))
        for _ in range(256):
            file.write(bytes(1 << 20))
    assert run_in_bounds(path, "gzip", 24) == "archive-hostile"


@pytest.mark.campaign
def test_half_a_million_entries_fit_in_256_mb(tmp_path: Path) -> None:
    count = ArchiveLimits().entries
    entries = [
        hostile_corpus.Entry(f"train/n{i % 1000:08}/n{i % 1000:08}_{i}.JPEG".encode(), b"x")
        for i in range(count)
    ]
    plain = hostile_corpus.build_raw_zip(entries)
    size, offset = int.from_bytes(plain[-10:-6], "little"), int.from_bytes(plain[-6:-2], "little")
    records = hostile_corpus.build_zip64_records(
        total=count, size=size, offset=offset, where=offset + size
    )
    end = plain[-22:-14] + b"\xff" * 12 + b"\0\0"
    path = tmp_path / "many.zip"
    path.write_bytes(plain[:-22] + records + end)
    del entries, plain
    assert run_in_bounds(path, "zip", 256) == str(count)
