"""From the documents to the guide's folder: copy, Zensical, checks."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.guide.pages import find_faults_of_guide_pages, rewrite_pages_and_delete_unused_files
from tools.guide.sources import ROOT, copy_documents_as_guide_sources

HERE = Path(__file__).parent
OUT = ROOT / "api" / "built_guide"


def rebuild_guide_folder(out: Path) -> None:
    """Build the HTML pages of the user guide into a folder, replacing it.

    Raises:
        SystemExit: a document has a fault, and the text names it; the folder stays as it is.
    """
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work).resolve()
        copy_documents_as_guide_sources(folder / "docs")
        shutil.copy(HERE / "zensical.toml", folder)
        shutil.copytree(HERE / "theme", folder / "theme")
        shutil.copy(ROOT / "api" / "static" / "icon.svg", folder / "theme")
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\nThe guide was not built; see above.")
        site = folder / "site"
        rewrite_pages_and_delete_unused_files(site)
        faults = find_faults_of_guide_pages(site)
        if faults:
            raise SystemExit("\n".join(["The guide was not built:", *faults]))
        # Only now, so that a guide with faults does not replace the one that is there.
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(site, out)
