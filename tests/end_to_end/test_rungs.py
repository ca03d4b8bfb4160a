"""Where halving judges: at a third and a ninth of the way, whoever trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.trial import FinishedOutcome, MetricsReported, PrunedOutcome
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import mine
from tests.end_to_end.records import Records

WORDS = (
    "study.name=rungs",
    "study.n_trials=2",
    "sampler=random",
    "pruner.min_steps=2",
    "pruner.min_trials=2",
    "devices=host",
    "execution=inline",  # where every report is judged at once
    "admission.max_concurrent_trials=1",
)
BUILTIN = (
    "training.epochs=9",
    "data.n_train=100",
    "data.n_validation=50",
    "space={lr: {low: 1e-9, high: 1, log: true}, width: 16}",
    "study.enqueue=[{lr: 0.2}, {lr: 1e-9}]",
)


def n_reports(records: Records, number: int) -> int:
    return sum(isinstance(event, MetricsReported) for event in records.of_trial(number))


@pytest.mark.parametrize(
    ("words", "n_steps"),
    [
        (BUILTIN, 3),
        ((*mine("stands_still"), "pruner.max_steps=9"), 3),
        (mine("stands_still"), 2),  # how many steps there are is not known
    ],
)
def test_the_worse_of_two_trials_stops_at_the_rung(
    folder: Path, call: Call, words: tuple[str, ...], n_steps: int
) -> None:
    done = call(*WORDS, *words)
    assert (done.code, done.stderr) == (0, "")
    records = Records(folder, "rungs")
    kinds = {number: type(outcome) for number, outcome in records.outcomes().items()}
    assert kinds == {0: FinishedOutcome, 1: PrunedOutcome}
    assert [n_reports(records, number) for number in (0, 1)] == [9, n_steps]
