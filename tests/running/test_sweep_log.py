"""`sweep.log` and the screen take whatever is logged: masked, and such that it can be encoded."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from rich.console import Console

from automl.running.run_sweep import sweep_log
from automl.terminal.live_display import PlainDisplay


def test_a_strangers_words_are_fit_for_file_and_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest keeps what reaches the root logger, and xdist cannot send a lone surrogate.
    monkeypatch.setattr(logging.getLogger("automl"), "propagate", False)
    screen = io.StringIO()
    with sweep_log(tmp_path / "sweep.log", PlainDisplay(Console(file=screen, width=200))):
        logging.getLogger("automl.x").warning("träne %s", "\ud800 password=s3cret \x1b[2J")
        logging.getLogger("automl.x").info("y" * 100_000)
    text = (tmp_path / "sweep.log").read_text(encoding="utf-8")
    assert "WARNING automl.x: träne � password=*** �[2J" in text
    assert screen.getvalue() == "träne � password=*** �[2J\n"
    assert len(text) < 30_000
