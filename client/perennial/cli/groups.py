"""Groups of commands: a name that is none gets the nearest ones suggested."""

from __future__ import annotations

from difflib import get_close_matches

import click

MEANT = {
    "add": ("create", "submit"),
    "cat": ("show",),
    "delete": ("rm", "revoke", "delete-data"),
    "del": ("rm", "revoke"),
    "edit": ("set",),
    "get": ("show", "list", "download"),
    "info": ("show", "status"),
    "ls": ("list",),
    "make": ("create",),
    "new": ("create",),
    "push": ("submit",),
    "remove": ("rm", "revoke"),
    "stop": ("cancel", "pause"),
    "start": ("resume", "serve"),
    "train": ("submit",),
    "update": ("set",),
    "upload": ("submit", "upload"),
}
"""Names that other programs have for the same."""
SHOWN = 3


class Commands(click.Group):
    """A group that suggests what may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click. Raises UsageError with the nearest names for one that is none."""
        name = args[0]
        known = self.list_commands(ctx)
        if ctx.resilient_parsing or name in known or name.startswith("-"):
            return super().resolve_command(ctx, args)
        near = [one for one in MEANT.get(name.lower(), ()) if one in known]
        near = near or get_close_matches(name.lower(), known, SHOWN)
        said = f" Did you mean {' or '.join(f'`{ctx.command_path} {one}`' for one in near)}?" if near else ""
        raise click.UsageError(f"There is no command {name!r}.{said}", ctx)
