"""`python -m perennial` is the command line."""

from perennial.cli.main import main

main()
