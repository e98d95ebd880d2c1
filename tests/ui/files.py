"""Files for the file inputs of a page, and for its drop zones."""

import io
import zipfile
from pathlib import Path

from playwright.sync_api import FilePayload, Page


def make_payload(name: str, content: bytes, kind: str = "application/zip") -> FilePayload:
    """Make a file with a name, by default an archive."""
    return {"name": name, "mimeType": kind, "buffer": content}


def unpack_zip(archive: bytes, folder: Path) -> None:
    """Write the files of a zip into a folder."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        opened.extractall(folder)


def drop_files(page: Page, place: str, *paths: Path) -> None:
    """Drag files or folders from the desktop onto a place of the page, as a person does."""
    page.locator(place).scroll_into_view_if_needed()
    box = page.locator(place).bounding_box()
    assert box is not None
    browser = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        event = {"type": kind, "x": box["x"] + 9, "y": box["y"] + 9, "data": data}
        browser.send("Input.dispatchDragEvent", event)
