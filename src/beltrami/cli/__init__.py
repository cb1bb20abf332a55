"""The `beltrami` command."""

from beltrami.cli.app import main

__all__ = ["main"]
