"""Entry point for `python -m perennial`, the command line."""

from perennial.cli.main import main

main()
