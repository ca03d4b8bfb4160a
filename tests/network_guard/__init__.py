"""The folder that `PYTHONPATH` names in all processes of the tests."""

from pathlib import Path

GUARD = str(Path(__file__).parent)
