"""What `import automl` offers, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import automl
from automl.in_trial.trial_context import declared_arguments

HEAVY = {"torch", "pandas", "sklearn", "optuna", "mlflow", "hydra"}


@pytest.mark.parametrize(
    "module", ["automl", "automl.in_trial.trial_context", "automl.objectives.training_plan"]
)
def test_what_the_parent_imports_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; sys.stdout.write(','.join({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_the_public_names_are_there() -> None:
    for name in automl.__all__:
        assert getattr(automl, name).__name__ in (name, f"automl.{name}")
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        automl.trian  # type: ignore[attr-defined]  # noqa: B018


def test_a_decorated_function_stays_itself_and_knows_what_it_takes() -> None:
    @automl.objective(params=["lr"], metrics=["val_loss"])
    def train(trial: automl.TrialContext) -> float:
        return 1.0

    assert train.__name__ == "train"
    assert declared_arguments(train).params == ("lr",)
    assert declared_arguments(train).metrics == ("val_loss",)
    assert declared_arguments(lambda trial: 0.0).params is None


def test_a_string_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(TypeError, match="takes lists of names"):
        automl.objective(params="lr")
