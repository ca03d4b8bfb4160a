"""How a study goes on: by a command line, or by the call that began it."""

from __future__ import annotations

import pytest

from automl.config import Config, DataConfig, ObjectiveConfig, ObjectiveKind, StudyConfig
from automl.errors import ConfigError
from automl.models.families.linear.family import LinearFamily
from automl.models.families.mlp.family import MLPFamily
from automl.objectives.function_call import CalledFunction
from automl.running.prepare.identity_settings import flat_settings, identity_settings
from automl.running.prepare.resume_command import (
    part_digests,
    refuse_missing_function,
    resume_command,
    resume_command_from_settings,
)
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler

PYTHON = ObjectiveConfig(ObjectiveKind.python, "m:train")
CALLED = ObjectiveConfig(
    ObjectiveKind.called, "train", file="a.ipynb", parts=["source=3 lines, 1f", "closure a=int, 2"]
)


@pytest.mark.parametrize(
    ("objective", "from_python", "line", "more"),
    [
        (PYTHON, False, "python -m automl resume s", " study.n_trials=9"),
        (CALLED, True, "the same call with name='s'", ", n_trials=9"),
        (ObjectiveConfig(), True, "the same call with name='s'", ", n_trials=9"),
    ],
)
def test_the_line_is_the_one_that_works(
    objective: ObjectiveConfig, from_python: bool, line: str, more: str
) -> None:
    config = Config(study=StudyConfig(name="s"), objective=objective)
    assert resume_command(config, from_python=from_python) == line
    assert resume_command(config, from_python=from_python, n_trials=9) == line + more


def test_a_record_knows_the_program_that_called() -> None:
    study = StudyConfig(name="s")
    called = {"objective.kind": "called", "objective.file": "a.ipynb"}
    assert resume_command_from_settings(study, called) == "the same call with name='s', in a.ipynb"
    own = {"objective.kind": "python", "objective.target": "m:train"}
    assert resume_command_from_settings(study, own) == "python -m automl resume s"
    of_file = {"objective.kind": "builtin", "study.metric_function": "costs.py:cost"}
    assert resume_command_from_settings(study, of_file) == "python -m automl resume s"
    of_call = of_file | {"study.metric_function": "cost"}
    line = "the same call with name='s', n_trials=3, in the same program"
    assert resume_command_from_settings(study, of_call, n_trials=3) == line


def test_only_its_caller_has_a_called_function() -> None:
    config = Config(study=StudyConfig(name="s"), objective=CALLED)
    with pytest.raises(
        ConfigError,
        match=r"stored nowhere\. Go on with it in a\.ipynb: the same call with name='s'",
    ):
        refuse_missing_function(config, None)
    refuse_missing_function(config, CalledFunction(len, None))
    refuse_missing_function(Config(objective=PYTHON), None)
    with pytest.raises(ConfigError, match=r"objective\.kind=called: is for automl\.sweep"):
        ObjectiveConfig(ObjectiveKind.called)


def test_a_called_function_is_known_by_its_parts_and_not_by_its_file() -> None:
    config = Config(
        objective=CALLED, model=MLPFamily(), sampler=IndependentSampler(), pruner=NoPruner()
    )
    assert part_digests(CALLED.parts) == {"source": "3 lines, 1f", "closure a": "int, 2"}
    assert identity_settings(config)["objective"] == {
        "kind": "called",
        "target": "train",
        "command": None,
        "pattern": None,
        "wandb": False,
        "suggests": False,
        "parts": {"source": "3 lines, 1f", "closure a": "int, 2"},
    }
    assert "objective.parts" not in flat_settings(config)


def test_a_share_that_nobody_says_is_that_of_studies_of_before() -> None:
    """With many rows the share differs, and so does the data's digest."""
    unsaid, before = (identity_settings(of_share(share))["data"] for share in (None, 0.2))
    assert unsaid == before
    assert identity_settings(of_share(0.3))["data"] != before


def of_share(share: float | None) -> Config:
    return Config(data=DataConfig(validation_fraction=share), model=LinearFamily())
