"""Which model is the best, said alike by summary, `status`, `status.json`, event log, record and
MLflow."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from automl.record.studies import read_study
from automl.trial import SweepEnded
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import objective_words
from tests.end_to_end.records import Records

WORDS = (
    "study.name=best",
    "study.n_trials=3",
    "sampler=random",
    "pruner=none",
    "devices.only=cpu",
    "execution=inline",
    "admission.max_concurrent_trials=1",
)


@dataclass(frozen=True)
class Best:
    """Number and value of the best trial, and the numbers in the order of the closing table."""

    number: int
    value: float
    order: list[int]


def said_everywhere(folder: Path, stdout: str, call: Call) -> Best:
    """What the program says of the best trial in all places, which agree."""
    table = stdout.partition("best trials\n")[2].splitlines()[1:]
    order = [int(line.split()[0]) for line in table if line.split()[0].isdigit()]
    value = float(table[0].split()[1])
    number = order[0]
    assert "best model: studies/best/best.pt\n" in stdout
    path = f"studies/best/checkpoints/trial-{number:05d}/best.pt"
    assert (folder / "studies" / "best" / "best.pt").resolve() == (folder / path).resolve()
    assert (folder / path).exists()
    said = rf"best val_loss {value:.5g} (\(returned; reported [\d.]+\) )?by trial {number} "
    assert re.search(said, call("status").stdout)
    view = json.loads((folder / "studies" / "best" / "status.json").read_text())
    assert (view["best"]["number"], view["best"]["value"]) == (number, value)
    record = read_study(folder / "studies" / "best")
    assert view["best_so_far"] == record.best_values(), "as the sweep saw it, and as the log has it"
    assert view["device_seconds"] == pytest.approx(record.device_seconds, abs=0.01)
    records = Records(folder, "best")
    ended = [event for event in records.events() if isinstance(event, SweepEnded)][-1]
    assert (ended.best_trial, ended.best_value) == (number, value)
    assert [trial.number for trial in read_study(records.path).ranking()] == order
    parent = records.parent()
    assert parent.data.tags["automl.best_trial"] == f"trial-{number:05d}"
    assert parent.data.metrics["best_value"] == value
    return Best(number, value, order)


@pytest.mark.slow
def test_a_pruned_trial_that_reported_the_best_value_is_the_best_model(
    folder: Path, call: Call
) -> None:
    done = call(*WORDS, *objective_words("gives_up_in_front"))
    assert said_everywhere(folder, done.stdout, call) == Best(1, 0.2, [1, 2, 0])
    table = done.stdout.partition("best trials\n")[2].splitlines()[1:4]
    assert [line.split()[-1] for line in table] == ["pruned", "finished", "finished"]

    done = call("resume", "study.name=best", "study.n_trials=4")
    assert said_everywhere(folder, done.stdout, call) == Best(1, 0.2, [1, 3, 2, 0])


@pytest.mark.slow
def test_where_the_objective_returns_its_value_only_finished_trials_count(
    folder: Path, call: Call
) -> None:
    done = call(*WORDS, *objective_words("gives_up_in_front_and_returns"))
    assert said_everywhere(folder, done.stdout, call) == Best(2, 8.0, [2, 0, 1])

    done = call("resume", "study.name=best")
    assert said_everywhere(folder, done.stdout, call) == Best(2, 8.0, [2, 0, 1])
