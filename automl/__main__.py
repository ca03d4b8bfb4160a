"""Runs the command line as `python -m automl`."""

from __future__ import annotations

import sys

from automl.cli import main

if __name__ == "__main__":  # worker processes import this module again
    sys.exit(main())
