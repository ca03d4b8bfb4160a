"""When people hear that a program tells nothing."""

from __future__ import annotations

from automl.objectives.program.command_session import SilenceMonitor


def test_it_is_said_once_with_the_remedy_and_a_report_begins_anew() -> None:
    silence = SilenceMonitor(600.0, now=0.0)
    assert silence.warning(0, 599.0) is None
    assert silence.warning(1, 600.0) is None
    assert silence.warning(1, 1199.0) is None
    assert silence.warning(1, 1200.0) == (
        "a program has told no metric for 10 minutes. If it never ends, Ctrl-C ends it, and "
        "execution.silence_timeout_seconds=600 has such trials fail"
    )
    assert silence.warning(1, 1201.0) is None
    assert silence.warning(2, 9000.0) is None
