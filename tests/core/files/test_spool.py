"""Uploads under way are kept; those of dead processes go at once."""

import os
import subprocess
import sys
from pathlib import Path

from core.files import spool

HOLD = """
import sys, time
from pathlib import Path
from core.files import spool
spool.create_and_lock_file(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_an_upload_is_kept_while_its_process_lives_and_removed_when_it_was_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "upload-1"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        spool.remove_abandoned_spool_files(tmp_path)
        assert path.exists()
    finally:
        holder.kill()
        holder.wait()
    spool.remove_abandoned_spool_files(tmp_path)
    assert not path.exists()


def test_another_file_goes_after_a_day(tmp_path: Path) -> None:
    for name, age_s in (("export-new", 0.0), ("export-old", spool.OTHER_S + 60)):
        file = tmp_path / name
        file.write_bytes(b"x")
        at = file.stat().st_mtime - age_s
        os.utime(file, (at, at))
    spool.remove_abandoned_spool_files(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["export-new"]
