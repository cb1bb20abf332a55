"""`python -m beltrami` is the `beltrami` command."""

import sys

from beltrami.cli import main

if __name__ == "__main__":
    sys.exit(main())
