"""Files for the file inputs of a page."""

from playwright.sync_api import FilePayload


def make_payload(name: str, content: bytes, kind: str = "application/zip") -> FilePayload:
    """Make a file with a name, by default an archive."""
    return {"name": name, "mimeType": kind, "buffer": content}
