"""What shows a running sweep: the live table and plain lines, as text of a fixed width."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from automl.terminal.live_display import LiveDisplay, PlainDisplay
from automl.terminal.view import WaitingRow
from tests.places import placed
from tests.terminal.test_rendering import BEST, VIEW, running


def plain() -> tuple[PlainDisplay, io.StringIO]:
    out = io.StringIO()
    return PlainDisplay(Console(file=out, width=80, highlight=False)), out


def test_plain_lines_come_when_a_trial_ended_and_now_and_then() -> None:
    display, out = plain()
    display.show(replace(VIEW, seconds=1.0))  # ended trials are news
    display.show(replace(VIEW, seconds=2.0))
    display.show(replace(VIEW, seconds=5.0))
    display.show(replace(VIEW, seconds=11.5))  # ten seconds without any
    display.show(replace(VIEW, seconds=12.0, counts={"finished": 9}))
    assert out.getvalue().count("\n") == 3
    assert out.getvalue().splitlines()[-1] == "9/20 trials (9 finished), 12 s, about 2:10 left"


def test_a_plain_line_is_one_line_with_best_reason_and_trouble() -> None:
    display, out = plain()
    view = replace(VIEW, best=BEST, waiting=(WaitingRow(9, "waiting: 3.0 GiB asked"),))
    display.show(replace(view, trouble="connection refused", n_undelivered=4))
    assert out.getvalue() == (
        "8/20 trials (2 running, 3 finished, 4 pruned, 1 failed), 1:15, about 2:10 left; best "
        "val_loss 0.033012 by trial 3 (depth 3, width 52, lr 0.0283, batch_size 64); trial 9 "
        "waiting: 3.0 GiB asked; MLflow: connection refused; 4 events wait\n"
    )


def test_before_the_first_trial_a_plain_line_has_no_empty_brackets() -> None:
    display, out = plain()
    display.show(replace(VIEW, counts={"running": 0}, seconds=10.0, seconds_left=None))
    assert out.getvalue() == "0/20 trials, 10 s\n"


def test_the_live_table_is_gone_at_the_end_and_lines_stay() -> None:
    out = io.StringIO()
    console = Console(file=out, width=40, force_terminal=True, _environ={"TERM": "xterm"})
    with LiveDisplay(console) as display:
        display.show(VIEW)
        display.say(f"best model: studies/{'x' * 60}/best.pt")
        display.end()
        after = out.tell()
        display.say("the end")
    assert f"studies/{'x' * 60}/best.pt" in out.getvalue()  # not broken at column 40
    assert out.getvalue()[after:] == "the end\n"  # nothing is redrawn over it
    assert "\x1b[?25h" in out.getvalue()  # the cursor is back


@pytest.mark.parametrize("kind", [PlainDisplay, LiveDisplay])
def test_whatever_is_said_is_masked(kind: type[PlainDisplay | LiveDisplay]) -> None:
    out = io.StringIO()
    kind(Console(file=out, width=80)).say("login failed: password=s3cret \ud800")
    assert out.getvalue() == "login failed: password=*** �\n"


def test_the_live_table_names_the_node_of_each_trial() -> None:
    out = io.StringIO()
    console = Console(file=out, width=84, force_terminal=True, color_system=None)
    with LiveDisplay(console) as display:
        display.show(replace(VIEW, running=(running(17, placed("node-b/host", 0).label),)))
    assert "17     cpu of node-b  12 s  7     val_loss 0.2346" in out.getvalue()
