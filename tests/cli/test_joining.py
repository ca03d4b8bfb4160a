"""What a sweep takes of the study that it joins."""

from __future__ import annotations

from typing import Any

from automl.cli.base import compare_with_stored
from automl.cli.stored_config import NOT_STORED_TEXT


def config(sampler: str, values: dict[str, Any], checkpoints: str | None = None) -> dict[str, Any]:
    """Return a stored config, as far as it is compared."""
    defaults = ["config_schema", {"sampler": f"{sampler}_schema"}, {"pruner": "none_schema"}]
    study = {"checkpoint_copies": checkpoints}
    return {"defaults": defaults, "sampler": values, "pruner": {}, "study": study}


NOTHING: tuple[list[str], list[str]] = ([], [])


BEGUN = config("tpe", {"n_startup_trials": 10, "constant_liar": True}, "s3://bucket/a")


def test_what_is_the_same_is_not_spoken_of() -> None:
    assert compare_with_stored("x", BEGUN, BEGUN, ["sampler=tpe"]) == NOTHING


def test_another_option_is_taken_with_its_values() -> None:
    here = config("random", {}, "s3://bucket/a")
    overrides, notes = compare_with_stored("x", BEGUN, here, ["study.name=x"])
    words = ["sampler=tpe", "sampler.n_startup_trials=10", "sampler.constant_liar=true"]
    assert overrides == words
    assert notes == [f"{' '.join(words)}: as study x was begun, which this sweep joins"]


def test_another_value_is_taken_alone() -> None:
    here = config("tpe", {"n_startup_trials": 3, "constant_liar": True}, "s3://bucket/a")
    overrides, _ = compare_with_stored("x", BEGUN, here, [])
    assert overrides == ["sampler=tpe", "sampler.n_startup_trials=10"]


def test_a_value_that_is_new_in_this_version_is_its_own() -> None:
    values = {"n_startup_trials": 10, "constant_liar": True, "added_since": 1}
    assert compare_with_stored("x", BEGUN, config("tpe", values, "s3://bucket/a"), []) == NOTHING


def test_what_the_command_line_says_goes() -> None:
    here = config("tpe", {"n_startup_trials": 3, "constant_liar": True}, "s3://bucket/a")
    overrides, (note,) = compare_with_stored("x", BEGUN, here, ["sampler.n_startup_trials=3"])
    assert overrides == []
    assert "begun with sampler=tpe sampler.n_startup_trials=10; " in note
    assert note.endswith("this sweep has sampler.n_startup_trials=3")


def test_checkpoints_go_where_those_of_the_study_are() -> None:
    here = config("tpe", {"n_startup_trials": 10, "constant_liar": True})
    overrides, _ = compare_with_stored("x", BEGUN, here, [])
    assert overrides == ["study.checkpoint_copies='s3://bucket/a'"]
    assert compare_with_stored("x", here, BEGUN, []) == NOTHING, (
        "they have their own place, and may have it"
    )


def test_a_credential_is_not_taken() -> None:
    begun = config("tpe", {}, NOT_STORED_TEXT)
    assert compare_with_stored("x", begun, config("tpe", {}), []) == NOTHING
