"""The best trial, by its reports or by the value that the objective returned."""

from __future__ import annotations

import math
import random

import pytest

from automl.record.study_record import StudyRecord, record_from_events
from automl.search.pruners.none import NoPruner
from automl.search.trial_standings import StudyStandings
from automl.trial import (
    Direction,
    Event,
    FinishedOutcome,
    MetricsReported,
    PrunedOutcome,
    StudyMetrics,
    SweepStarted,
    TrialState,
)

FINISHED, PRUNED = TrialState.FINISHED, TrialState.PRUNED


def stand(
    *trials: tuple[TrialState, float, list[float]], direction: Direction = Direction.minimize
) -> StudyStandings:
    """Trials as (state, value, reports), in the order in which they end."""
    table = StudyStandings(StudyMetrics.single(direction), NoPruner())
    for state, value, reports in trials:
        number = table.start({})
        for step, report in enumerate(reports):
            table.record(number, step, report)
        table.end(number, state, value)
    return table


def folded(
    *trials: tuple[TrialState, float, list[float]], direction: Direction = Direction.minimize
) -> StudyRecord:
    """The record of a study of the same trials."""
    settings = {"study.metric": "loss", "study.direction": direction.name}
    events: list[Event] = [SweepStarted(0.0, "s", "u", settings)]
    for number, (state, value, reports) in enumerate(trials):
        events += [
            MetricsReported(number, 1.0, n, {"loss": loss}) for n, loss in enumerate(reports)
        ]
        finished = state is FINISHED
        events.append(
            FinishedOutcome(number, 2.0, value)
            if finished
            else PrunedOutcome(number, 2.0, 0, value)
        )
    return record_from_events(events)


def order(table: StudyStandings) -> list[int]:
    return [trial.number for trial in table.ranking(9)]


def best(table: StudyStandings) -> int | None:
    found = table.best()
    return None if found is None else found.number


@pytest.mark.parametrize("direction", Direction)
def test_a_running_trial_leads_once_values_are_known_to_be_best_reports(
    direction: Direction,
) -> None:
    sign = 1.0 if direction is Direction.minimize else -1.0
    table = stand((FINISHED, 0.5 * sign, [0.5 * sign]), direction=direction)
    table.record(running := table.start({}), 0, 0.3 * sign)
    table.record(table.start({}), 0, math.nan)
    assert table.leader() == (running, 0.3 * sign)
    table.record(running, 1, 0.9 * sign)
    assert table.leader() == (running, 0.3 * sign), "its best report counts"


def test_a_report_leads_nothing_where_values_are_returned_or_none_has_finished() -> None:
    returned = stand((FINISHED, 0.5, [0.1]))
    nothing = stand((PRUNED, 0.2, [0.2]))
    for table in (returned, nothing):
        table.record(table.start({}), 0, 0.1)
    assert returned.leader() == (0, 0.5)
    assert nothing.leader() is None


def test_the_best_report_wins_whether_its_trial_was_pruned_or_not() -> None:
    trials = [(FINISHED, 0.5, [0.9, 0.5, 0.6]), (PRUNED, 0.2, [0.2]), (FINISHED, 0.3, [0.3])]
    assert order(table := stand(*trials)) == [1, 2, 0]
    assert best(table) == 1
    assert [trial.state for trial in table.ranking(2)] == [PRUNED, FINISHED]
    assert order(stand(*trials, direction=Direction.maximize))[0] == 0


@pytest.mark.parametrize("direction", Direction)
def test_values_that_were_returned_compare_with_no_report(direction: Direction) -> None:
    """One finished trial shows it, and all that were pruned come last, before it and after."""
    trials = [(PRUNED, 0.5, [0.5]), (FINISHED, 0.4, [0.1, 0.9]), (FINISHED, 0.6, [0.1, 0.9])]
    ranked = order(table := stand(*trials, direction=direction))
    assert ranked == ([1, 2, 0] if direction is Direction.minimize else [2, 1, 0])
    assert best(table) == ranked[0]
    assert order(stand((PRUNED, 0.1, [0.1]), (FINISHED, 0.4, []))) == [1, 0]
    shown_once = [(FINISHED, 0.4, [0.1]), (FINISHED, 0.9, [0.9]), (PRUNED, 0.2, [0.2])]
    assert order(stand(*shown_once)) == [0, 1, 2]
    assert best(stand((PRUNED, 0.2, [0.2]), (FINISHED, math.nan, []))) is None


def test_a_value_that_is_returned_and_was_reported_is_a_report() -> None:
    trials = [(FINISHED, 0.5, [0.9, 0.5]), (PRUNED, 0.2, [0.2])]
    assert best(stand(*trials)) == 1


def test_an_epoch_repeated_a_little_otherwise_shows_no_returned_value() -> None:
    assert best(stand((FINISHED, 0.50001, [0.9, 0.5]), (PRUNED, 0.2, [0.2]))) == 1


def test_reports_that_are_no_numbers_are_not_what_a_trial_is_worth() -> None:
    odd = [math.nan, -math.inf, 0.5, math.inf]
    assert best(stand((FINISHED, 0.5, odd), (PRUNED, 0.2, [0.2]))) == 1


def test_of_equals_the_finished_one_is_first_then_the_one_begun_first() -> None:
    equal = [(PRUNED, 0.2, [0.2]), (FINISHED, 0.2, [0.2]), (FINISHED, 0.2, [0.2])]
    assert order(stand(*equal)) == [1, 2, 0]


def test_a_pruned_trial_is_the_best_while_none_has_finished() -> None:
    assert best(stand((PRUNED, 0.2, [0.2]), (PRUNED, 0.1, [0.1]))) == 1
    assert best(stand((TrialState.FAILED, 0.1, [0.1]))) is None


@pytest.mark.parametrize("direction", Direction)
def test_the_record_of_a_study_ranks_its_trials_as_the_sweep_does(direction: Direction) -> None:
    chance = random.Random(7)
    for _ in range(300):
        trials = []
        for _ in range(chance.randint(1, 4)):
            reports = [chance.choice([0.1, 0.2, 0.3, math.nan]) for _ in range(2)]
            value = chance.choice([*reports, 0.1, 0.101, 0.9])
            state = chance.choice([FINISHED, PRUNED])
            trials.append((state, 0.5 if math.isnan(value) else value, reports))
        table, study = stand(*trials, direction=direction), folded(*trials, direction=direction)
        assert [trial.number for trial in study.ranking()] == order(table)
        found = study.best()
        assert (None if found is None else found.number) == best(table)
