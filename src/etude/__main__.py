"""`python -m etude` is the `etude` command."""

from etude.cli import main

main()
