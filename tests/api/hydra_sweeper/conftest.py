"""Programs that find the plugin."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

import automl
from tests.end_to_end.program import Program

PLUGIN_PATH = Path(automl.__file__).parent / "api" / "hydra_sweeper" / "plugin_path"
"""The folder that an installation has on the Python path."""


@pytest.fixture
def program(program: Program) -> Program:
    if importlib.util.find_spec("hydra_plugins") is None:
        # The environment was made before there was a plugin.
        paths = [str(PLUGIN_PATH), program.environment.get("PYTHONPATH", "")]
        program.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return program
