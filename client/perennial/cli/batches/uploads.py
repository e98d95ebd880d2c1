"""The commands uploads list and uploads rm."""

from __future__ import annotations

import click

from perennial.cli.command import CommandContext, cli_command
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.lookup import resolve_id_or_name
from perennial.cli.output import format_bytes, format_time, print_text


@click.group("uploads", cls=SuggestingCommandGroup)
def upload_commands() -> None:
    """List and remove uploads of large batches that have begun and are not submitted."""


@cli_command("list", upload_commands, columns=("upload", "file", "here", "of", "begun", "expires"))
def run_list_uploads_command(shell: CommandContext) -> None:
    """List open uploads, newest first; their received bytes count towards your storage."""
    open_uploads = list(shell.create_client().uploads.list())
    rows = [
        (
            upload.id,
            upload.filename,
            format_bytes(upload.offset),
            format_bytes(upload.length),
            format_time(upload.created_at),
            format_time(upload.expires_at),
        )
        for upload in open_uploads
    ]
    shell.print_rows(open_uploads, rows, "No upload is open.")


@cli_command("rm", upload_commands)
@click.argument("upload", metavar="UPLOAD|FILE")
def run_remove_upload_command(shell: CommandContext, upload: str) -> None:
    """Remove an upload, by its id or file name, with its received bytes; a new submit
    starts over.
    """
    client = shell.create_client()
    upload_id = resolve_id_or_name(
        upload, "upload", "upl_", client.uploads.list(), lambda one: one.filename
    )
    client.uploads.delete(upload_id)
    shell.print_result(
        {"deleted": upload_id}, lambda: print_text(f"Upload {upload_id} is removed.")
    )
