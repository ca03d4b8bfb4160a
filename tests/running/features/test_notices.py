"""What a user may not have meant, told once: params that were tried before."""

from __future__ import annotations

from automl.running.features.notices import RepeatedParams


def test_the_first_repeat_is_said_and_no_other() -> None:
    repeated = RepeatedParams([])
    trials = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.2}, {"lr": 0.1}]
    lines = [repeated.line(number, params) for number, params in enumerate(trials)]
    assert [line is not None for line in lines] == [False, False, False, True, False]
    assert str(lines[3]).startswith("trial 3 has the params of trial 1 and trains them again")


def test_a_study_that_goes_on_knows_its_trials_of_before() -> None:
    line = RepeatedParams([{"lr": 0.1}, {"lr": 0.1}]).line(2, {"lr": 0.1})
    assert str(line).startswith("trial 2 has the params of trial 0")
