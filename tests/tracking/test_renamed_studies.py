"""Whose runs they are in MLflow, where a study was renamed or copied."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from automl.tracking.mlflow_store import NotDeliveredError
from automl.tracking.view.run_update import StudyRef
from automl.trial import SweepStarted
from tests.flips import unsealed
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver, delivery
from tests.tracking.scenes import (
    BEGUN,
    NAME,
    UUID,
    begin,
    finish,
    interrupt,
    sweep_started,
    trial,
    write,
)

RENAMED = StudyRef(UUID, "calm-lynx", ("before", NAME))
COPY = StudyRef("of-the-copy", "calm-lynx")


def names_of(shown: Shown) -> dict[str, str]:
    """Name by id of every experiment but MLflow's own."""
    found = shown.client.search_experiments()
    return {e.experiment_id: e.name for e in found if e.name != "Default"}


def whose(shown: Shown) -> Counter[tuple[str, str, str]]:
    """(experiment, study uuid, name) of all runs."""
    return Counter(
        (name, run.data.tags["automl.study"], str(run.info.run_name))
        for experiment, name in names_of(shown).items()
        for run in shown.client.search_runs([experiment])
    )


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_renamed_study_takes_its_experiment_with_it(
    study: Path, shown: Shown, forgotten: bool
) -> None:
    write(study, sweep_started(), *trial(0))
    deliver(study)
    (experiment,) = names_of(shown)
    if forgotten:  # what MLflow has is looked up: it changes nothing there
        (study / "events.delivered").unlink()
    write(study, sweep_started(), *trial(1))
    deliver(study, ref=RENAMED)
    assert names_of(shown) == {experiment: "calm-lynx"}
    assert set(whose(shown).values()) == {1}
    assert len(whose(shown)) == 3


@pytest.mark.parametrize("name", ["by hand", NAME])
def test_an_experiment_keeps_a_name_that_is_not_the_studys_alone(
    study: Path, shown: Shown, name: str
) -> None:
    write(study, sweep_started(), *trial(0))
    deliver(study)
    (experiment,) = names_of(shown)
    if name == NAME:
        shown.client.create_run(
            experiment, tags={"automl.study": "another", "automl.kind": "study"}
        )
    else:
        shown.client.rename_experiment(experiment, name)
    write(study, sweep_started(), *trial(1))
    deliver(study, ref=RENAMED)
    assert names_of(shown) == {experiment: name}


def test_a_name_that_another_experiment_has_is_left_to_it(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0))
    deliver(study)
    (experiment,) = names_of(shown)
    other = shown.client.create_experiment("calm-lynx")
    write(study, sweep_started(), *trial(1))
    deliver(study, ref=RENAMED)
    assert names_of(shown) == {experiment: NAME, other: "calm-lynx"}
    assert len(shown.runs()) == 3


@pytest.mark.parametrize("older_version", [False, True])
def test_a_copy_gets_all_trials_as_runs_of_its_own(
    study: Path, shown: Shown, older_version: bool
) -> None:
    write(study, sweep_started(), *trial(0), *trial(1, 1, interrupt(1)))
    deliver(study)
    before = {run.info.run_id: run.to_dictionary() for run in shown.runs()}
    delivered = study / "events.delivered"
    if older_version:
        said = unsealed(delivered.read_bytes())
        delivered.write_bytes(said.replace(f'"study": "{UUID}", '.encode(), b""))
    write(study, begin(1), finish(1))  # what only the copy knows
    with delivery(study, ref=COPY) as delivering:
        delivering.read()
        if older_version:
            with pytest.raises(NotDeliveredError, match="vanished"):
                delivering.deliver()
            delivering.read()
        delivering.deliver()
    assert {run.info.run_id: run.to_dictionary() for run in shown.runs()} == before
    runs = [NAME, "trial-00000", "trial-00001"]
    own = ["calm-lynx", *runs[1:]]
    expected = [(NAME, UUID, run) for run in runs]
    expected += [("calm-lynx", COPY.uuid, run) for run in own]
    assert whose(shown) == Counter(expected)


def test_a_log_of_two_studies_is_the_last_ones(study: Path, shown: Shown) -> None:
    """As `sync` finds it where a copy's place was lost."""
    write(study, sweep_started(), *trial(0))
    deliver(study)
    write(study, SweepStarted(BEGUN, NAME, "of-the-copy", {}), *trial(1))
    deliver(study)
    assert Counter(uuid for _, uuid, _ in whose(shown)) == {UUID: 2, "of-the-copy": 3}
