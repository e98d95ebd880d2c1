"""Scratch folders go with their owner, however it ends."""

import subprocess
import sys
from pathlib import Path

from core.files.spool import ScratchFolder

KILLED = """
import os, signal, sys
from pathlib import Path
from core.files.spool import ScratchFolder
folder = ScratchFolder(Path(sys.argv[1])).create_scratch_folder()
(folder / "weights").write_bytes(b"1")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_goes_when_it_is_closed_and_may_be_closed_before_it_is_opened(
    tmp_path: Path,
) -> None:
    scratch = ScratchFolder(tmp_path)
    scratch.remove_scratch_folder()
    (scratch.create_scratch_folder() / "weights").write_bytes(b"1")
    scratch.remove_scratch_folder()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_goes_with_the_next_one_and_that_of_a_living_one_stays(
    tmp_path: Path,
) -> None:
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, check=False)
    assert len(list(tmp_path.glob("*/weights"))) == 1
    first, second = ScratchFolder(tmp_path), ScratchFolder(tmp_path)
    mine = first.create_scratch_folder()
    other = second.create_scratch_folder()
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {mine, other}
