"""The commands uploads list and uploads rm."""

from __future__ import annotations

import click

from perennial.cli.command import Shell, command
from perennial.cli.groups import Commands
from perennial.cli.named import find_id
from perennial.cli.output import say, size, when


@click.group("uploads", cls=Commands)
def uploads() -> None:
    """List and remove uploads of large batches that have begun and are not submitted."""


@command("list", uploads, columns=("upload", "file", "here", "of", "begun", "expires"))
def list_uploads(shell: Shell) -> None:
    """List open uploads, newest first; their received bytes count towards your storage."""
    open_uploads = list(shell.client().uploads.list())
    rows = [
        (of.id, of.filename, size(of.offset), size(of.length), when(of.created_at), when(of.expires_at))
        for of in open_uploads
    ]
    shell.rows(open_uploads, rows, "No upload is open.")


@command("rm", uploads)
@click.argument("upload", metavar="UPLOAD|FILE")
def rm(shell: Shell, upload: str) -> None:
    """Remove an upload, by its id or file name, with its received bytes; a new submit
    starts over.
    """
    client = shell.client()
    upload_id = find_id(upload, "upload", "upl_", client.uploads.list(), lambda one: one.filename)
    client.uploads.delete(upload_id)
    shell.answer({"deleted": upload_id}, lambda: say(f"Upload {upload_id} is removed."))
