"""uploads: list, rm."""

from __future__ import annotations

import click

from perennial.cli.command import Shell, command
from perennial.cli.output import say, size, table, when


@click.group("uploads")
def uploads() -> None:
    """Large batches that were begun and not submitted: list and remove them."""


@command("list", uploads)
def list_uploads(shell: Shell) -> None:
    """Open uploads, newest first: what of them is at the service counts among your bytes."""
    found = list(shell.client().uploads.list())
    rows = [
        (of.id, of.filename, size(of.offset), size(of.length), when(of.created_at), when(of.expires_at))
        for of in found
    ]
    columns = ("upload", "file", "here", "of", "begun", "expires")
    shell.answer(found, lambda: table(columns, rows, "No upload is open."))


@command("rm", uploads)
@click.argument("upload")
def rm(shell: Shell, upload: str) -> None:
    """Remove an upload with what has come of it; a submit of its file begins anew."""
    shell.client().uploads.delete(upload)
    shell.answer({"deleted": upload}, lambda: say(f"Upload {upload} is removed."))
