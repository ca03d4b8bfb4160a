"""What `import automl` offers, and how its errors are shown in IPython."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
from IPython.core.interactiveshell import InteractiveShell

import automl


def test_the_package_lists_what_it_has_and_no_more() -> None:
    listed = [name for name in dir(automl) if not name.startswith("_")]
    assert listed == sorted(automl.__all__)
    assert automl.__version__ == metadata.version("automl-sweep")


def test_listing_loads_nothing_heavy() -> None:
    code = "import automl, sys; dir(automl); automl.__version__; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_error_takes_a_few_lines_in_ipython(capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell.instance()
    shell.run_cell(  # type: ignore[no-untyped-call]
        "import automl\nautoml.open_study('no-such-study')"
    )
    shown = capsys.readouterr().out
    InteractiveShell.clear_instance()
    assert len(shown.splitlines()) <= 4
    assert shown.startswith("line 2: automl.open_study('no-such-study')")
    assert "ConfigError: study.name=no-such-study: " in shown
