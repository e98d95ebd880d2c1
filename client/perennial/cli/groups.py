"""Groups of commands that suggest similar names for an unknown one."""

from __future__ import annotations

from difflib import get_close_matches

import click

MEANT = {
    "add": ("create", "submit"),
    "cat": ("show",),
    "delete": ("rm", "revoke", "delete-data"),
    "del": ("rm", "revoke"),
    "edit": ("edits", "set"),
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
"""Names of the same commands in other programs."""
SHOWN = 3


class SuggestingCommandGroup(click.Group):
    """A click group that suggests similar names for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does. Raises UsageError with similar names for an
        unknown one.
        """
        name = args[0]
        # Completion parses command lines that are not finished, which must not fail.
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        # Not before, since listing plugins reads the metadata of all installed packages.
        names = self.list_commands(ctx)
        near = [one for one in MEANT.get(name.lower(), ()) if one in names]
        # By meaning first, because the letters of `delete` do not lead to `rm`.
        near = near or get_close_matches(name.lower(), names, SHOWN)
        suggestion = (
            f" Did you mean {' or '.join(f'`{ctx.command_path} {one}`' for one in near)}?"
            if near
            else ""
        )
        raise click.UsageError(f"There is no command {name!r}.{suggestion}", ctx)
