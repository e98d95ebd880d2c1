"""uploads: list, rm."""

from __future__ import annotations

import click

from perennial.cli.command import Shell, command
from perennial.cli.groups import Commands
from perennial.cli.named import find_id
from perennial.cli.output import say, size, when


@click.group("uploads", cls=Commands)
def uploads() -> None:
    """Large batches that were begun and not submitted: list and remove them."""


@command("list", uploads, columns=("upload", "file", "here", "of", "begun", "expires"))
def list_uploads(shell: Shell) -> None:
    """Open uploads, newest first: what of them is at the service counts among your bytes."""
    found = list(shell.client().uploads.list())
    rows = [
        (of.id, of.filename, size(of.offset), size(of.length), when(of.created_at), when(of.expires_at))
        for of in found
    ]
    shell.rows(found, rows, "No upload is open.")


@command("rm", uploads)
@click.argument("upload", metavar="UPLOAD|FILE")
def rm(shell: Shell, upload: str) -> None:
    """Remove an upload, by its id or its file's name, with what has come of it; a submit of its file begins again."""
    client = shell.client()
    found = find_id(upload, "upload", "upl_", client.uploads.list(), lambda one: one.filename)
    client.uploads.delete(found)
    shell.answer({"deleted": found}, lambda: say(f"Upload {found} is removed."))
