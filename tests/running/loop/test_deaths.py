"""A sweep dies at any step of its disk, again and again; its study is exact all the same.

A failing case is a few kills, which Hypothesis makes fewer and earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.record.append_only import AppendOnlyFile
from automl.record.event_log import EventLog
from automl.running.opening.recovery import take_over_trials
from automl.trial import FinishedOutcome, TrialOutcome, TrialStarted
from tests.running.loop.durable_world import Kill, Lives, open_study
from tests.running.loop.simulated_machine import Plan

GB = 1000**3
plans = st.builds(
    Plan,
    request_bytes=st.integers(1, 20).map(lambda n: n * GB),
    peak_bytes=st.just(GB),
    seconds=st.floats(0.5, 6),
    ends=st.sampled_from(["finished", "finished", "failed", "dies"]),
    hosted_after=st.floats(0, 1),
)
kills = st.builds(
    Kill,
    after_steps=st.integers(1, 90),
    by_power_cut=st.booleans(),
    unflushed=st.floats(0, 1),
    names_of_now=st.booleans(),
    stop_at=st.none() | st.floats(0, 6),
)


@settings(max_examples=40, deadline=None)
@given(
    planned=st.lists(plans, min_size=1, max_size=4),
    deaths=st.lists(kills, max_size=4),
    checkpoint_every_seconds=st.sampled_from([0.0, 2.0]),
)
def test_nothing_is_lost_or_done_twice_wherever_a_sweep_dies(
    planned: Sequence[Plan], deaths: Sequence[Kill], checkpoint_every_seconds: float
) -> None:
    with TemporaryDirectory() as cuts:
        Lives(Path(cuts), planned, 3, checkpoint_every_seconds).live(deaths)


def test_what_only_the_log_knows_to_have_ended_is_not_trained_again(tmp_path: Path) -> None:
    with closing(open_study(tmp_path, 2)) as study:
        assert [asked.number for asked in (study.ask(), study.ask()) if asked] == [0, 1]
    ended, told = FinishedOutcome(0, 2.0, 0.5), list[TrialOutcome]()
    with EventLog.open(tmp_path / "events.log") as log:
        log.append(TrialStarted(0, 1.0, params={}, device="cpu"))
        log.append(ended)
    with (
        closing(open_study(tmp_path, 2)) as study,
        EventLog.open(tmp_path / "events.log") as log,
    ):
        left = take_over_trials(study, log.record, told.append)
    assert told == [ended]
    assert [waiting.trial.number for waiting in left] == [1]


def test_a_mutation_a_log_that_is_not_flushed_loses_an_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AppendOnlyFile, "flush", lambda self, n: None)
    lost = [died_at(n) for n in range(69, 76)]
    assert any("an outcome was lost" in what for what in lost), lost


def died_at(n_steps: int) -> str:
    """Return what is wrong with a study after a power cut."""
    with TemporaryDirectory() as cuts:
        try:
            Lives(Path(cuts), [Plan(GB, GB)] * 2).live([Kill(n_steps, by_power_cut=True)])
        except AssertionError as broken:
            return str(broken)
    return ""
