"""Which folders have a link to the best model that a sweep keeps right."""

from __future__ import annotations

from pathlib import Path

from automl.running.features.winner_link import study_folders


def test_a_sweep_that_joined_keeps_the_link_of_the_study_too() -> None:
    study = Path("/data/studies/prices")
    assert study_folders(study) == (study,)
    joined = study / "joined" / "node-b-0" / "prices"
    assert study_folders(joined) == (joined, study)
