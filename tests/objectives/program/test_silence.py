"""When people hear that a program tells nothing."""

from __future__ import annotations

from automl.objectives.program.command_session import SilenceMonitor


def test_it_is_said_once_and_a_report_begins_anew() -> None:
    silence = SilenceMonitor(600.0, now=0.0)
    assert not silence.warning_is_due(0, 599.0)
    assert not silence.warning_is_due(1, 600.0)
    assert not silence.warning_is_due(1, 1199.0)
    assert silence.warning_is_due(1, 1200.0)
    assert not silence.warning_is_due(1, 1201.0)
    assert not silence.warning_is_due(2, 9000.0)


def test_it_is_said_with_the_remedy() -> None:
    assert SilenceMonitor(600.0, now=0.0).warning == (
        "a program has told no metric for 10 minutes. If it never ends, Ctrl-C ends it, and "
        "execution.silence_timeout_seconds=600 has such trials fail"
    )
