"""What is refused before the first trial, and the memory that is asked for."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from automl.config import (
    Config,
    ObjectiveConfig,
    ObjectiveKind,
    Precision,
    StudyConfig,
    Task,
    TrainingConfig,
)
from automl.config.metrics import reported_metric
from automl.data.dataset import Dataset
from automl.errors import ConfigError
from automl.in_trial.user_code import resolve_objective
from automl.models.families.mlp.family import Growth, MLPFamily
from automl.objectives.function_call import ObjectiveDeclaration
from automl.objectives.plan_checks import (
    check_batch,
    check_class_weight,
    check_metric,
    check_space,
    check_values,
)
from automl.objectives.training_plan import TrainingPlan, declare_objective
from automl.trial import UNKNOWN_REQUEST, Direction
from tests.models.conftest import make_plan

HERE = "tests.objectives.objectives"


def python_plan(target: str) -> TrainingPlan:
    return make_plan(objective=ObjectiveConfig(ObjectiveKind.python, target))


def test_a_plan_can_be_sent_to_another_process() -> None:
    plan = make_plan(space=("lr",))
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_the_built_in_objective_declares_params_and_metrics(disc: Dataset, plane: Dataset) -> None:
    declaration = declare_objective(make_plan(), disc)
    assert declaration.params is not None
    assert {"depth", "width", "lr", "batch_size", "optimizer"} <= set(declaration.params)
    assert declaration.metrics == reported_metric(Task.classification)
    assert declaration.metrics[:3] == ("train_loss", "val_loss", "val_error")
    assert declare_objective(make_plan(), plane).metrics == reported_metric(Task.regression)


def test_growth_doubling_takes_no_width(disc: Dataset) -> None:
    declaration = declare_objective(make_plan(family=MLPFamily(growth=Growth.doubling)), disc)
    with pytest.raises(ConfigError, match=r"space\.width: unknown here; the objective takes: dep"):
        check_space(declaration, ["depth", "width"], "val_loss")


def test_a_misspelt_param_is_named_with_the_list_and_a_guess(disc: Dataset) -> None:
    with pytest.raises(
        ConfigError, match=r"space\.batchsize: .*takes: depth, width.*Did you mean batch_size\?"
    ):
        check_space(declare_objective(make_plan(), disc), ["depth", "batchsize"], "val_loss")


def test_a_metric_that_is_not_reported_is_named_with_the_list(disc: Dataset) -> None:
    with pytest.raises(
        ConfigError, match=r"study\.metric=val_rmse: .*reports: train_loss, val_loss, val_error"
    ):
        check_space(declare_objective(make_plan(), disc), ["depth"], "val_rmse")


@pytest.mark.parametrize(
    ("metric", "direction", "task", "said"),
    [
        ("val_r2", Direction.maximize, Task.classification, "does not suit .* val_auc, "),
        ("val_auc", Direction.maximize, Task.regression, "does not suit .* val_mae, val_r2, "),
        ("val_auc", Direction.minimize, Task.classification, "of val_auc large values are good"),
        ("val_mae", Direction.maximize, Task.regression, "of val_mae small values are good"),
    ],
)
def test_a_metric_that_does_not_suit_is_refused(
    metric: str, direction: Direction, task: Task, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_metric(metric, direction, task)


def test_the_direction_follows_from_the_name_of_a_metric_of_ours() -> None:
    def direction(objective: ObjectiveConfig, **study: Any) -> Direction:
        return Config(study=StudyConfig(**study), objective=objective).study.decided_direction

    builtin = ObjectiveConfig()
    own = ObjectiveConfig(kind=ObjectiveKind.python, target="a:b")
    assert direction(builtin, metric="val_auc") is Direction.maximize
    assert direction(builtin) is Direction.minimize
    assert direction(own, metric="val_auc") is Direction.minimize
    assert direction(own, metric="m", direction=Direction.maximize) is Direction.maximize


def test_only_classes_are_weighed() -> None:
    check_class_weight(["class_weight"], "auto", Task.classification)
    check_class_weight(["lr"], "a:b", Task.regression)
    for loss, task in (("auto", Task.regression), ("a:b", Task.classification)):
        with pytest.raises(ConfigError, match=r"Take it out with ~space\.class_weight"):
            check_class_weight(["class_weight"], loss, task)
    with pytest.raises(ConfigError, match=r"Take it out with ~space\.mlp_class_weight"):
        check_class_weight(["mlp_class_weight"], "auto", Task.regression)


def test_what_fits_is_let_through(disc: Dataset) -> None:
    check_space(declare_objective(make_plan(), disc), ["depth", "width", "lr"], "val_error")
    check_space(ObjectiveDeclaration(None, (), None), ["anything"], "at all")


def test_a_declared_objective_has_its_space_checked() -> None:
    declaration = declare_objective(python_plan(f"{HERE}:declared"), None)
    check_space(declaration, ["lr", "depth", "seed"], "acc")
    default = ["depth", "width", "lr", "batch_size"]
    with pytest.raises(ConfigError, match=r"space\.width: .*network's space.*space='\{NAME: …"):
        check_space(declaration, default, "acc")
    with pytest.raises(ConfigError, match=r"space\.width: unknown here; .*: lr, depth, seed"):
        check_space(declaration, ["lr", "depth", "width"], "acc")
    with pytest.raises(ConfigError, match=r"space: depth not there.*The space has: lr\."):
        check_space(declaration, ["lr"], "acc")
    with pytest.raises(ConfigError, match=r"study\.metric=loss: .*reports: val_loss, acc"):
        check_space(declaration, ["lr", "depth"], "loss")


def test_an_objective_without_a_decorator_takes_anything() -> None:
    declaration = declare_objective(python_plan(f"{HERE}:returns_a_number"), None)
    assert declaration == ObjectiveDeclaration(None, (), None)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module:train", "there is no module no_such_module in .* or on the Python path"),
        ("tests.no_such:train", r"there is no module tests\.no_such in"),
        (f"{HERE}:trian", rf"{HERE} has no trian\. It has: .*declared"),
        (f"{HERE}:no_function", "this is no function but a int"),
        ("no-such.py:train", r"there is no file no-such\.py in /.*Start from the folder it is in"),
    ],
)
def test_an_objective_that_cannot_be_had_says_why(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        declare_objective(python_plan(target), None)
    assert str(caught.value).startswith(f"objective.target={target}: ")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("def train(trial:", "SyntaxError: '\\(' was never closed"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_fails_on_import_shows_its_own_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    (tmp_path / "failing_objective.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"importing failing_objective failed with {message}"):
        declare_objective(python_plan("failing_objective:train"), None)


def test_a_module_in_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "objective_in_cwd.py").write_text("def train(trial): return 1.0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in __import__("sys").path if p])
    assert declare_objective(python_plan("objective_in_cwd:train"), None) == ObjectiveDeclaration(
        None, (), None
    )


def test_a_target_may_be_a_file_with_its_own_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my code"
    folder.mkdir()
    (folder / "train-model.py").write_text(
        "import sys, neighbour_of_a_file\nclass Kept: pass\ndef train(lr): return neighbour.x\n"
        "assert sys.argv == ['my code/train-model.py']"
    )
    (folder / "neighbour_of_a_file.py").write_text("x = 1.0")
    (folder / "json.py").write_text("def train(trial): return 1.0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    for _ in range(2):
        found = resolve_objective("my code/train-model.py:train")
        assert found is resolve_objective("./my code/train-model.py:train")
    kept = resolve_objective("my code/train-model.py:Kept")()
    assert type(pickle.loads(pickle.dumps(kept))) is type(kept)
    resolve_objective("my code/json.py:train")
    assert sys.modules["json"] is json
    assert ObjectiveConfig(ObjectiveKind.python, "../train-model.py:a.b")


def test_a_file_that_fails_shows_its_own_message(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("raise RuntimeError('no licence')")
    with pytest.raises(
        ConfigError, match=r"importing .*RuntimeError: no licence.*`python /.*works"
    ):
        declare_objective(python_plan(f"{tmp_path}/failing.py:train"), None)
    assert "failing" not in sys.modules


def test_a_bound_or_choice_that_cannot_work_is_refused(disc: Dataset) -> None:
    check_values(make_plan(), {"lr": [1e-4, 0.1], "optimizer": ["sgd", "adam"]})
    with pytest.raises(ConfigError, match=r"space\.optimizer='adamm': must be one of sgd, adam"):
        check_values(make_plan(), {"optimizer": ["sgd", "adamm"]})
    with pytest.raises(ConfigError, match=r"space\.dropout=1\.0: must be a number from 0 to below"):
        check_values(make_plan(), {"dropout": [0.0, 1.0]})
    check_values(python_plan(f"{HERE}:declared"), {"dropout": ["many"]})


def test_a_batch_larger_than_the_training_part_is_refused(disc: Dataset) -> None:
    check_batch(disc.name, len(disc.train), 300)
    with pytest.raises(
        ConfigError, match=r"space\.batch_size=301: the training part of disc has only 300 rows"
    ):
        check_batch(disc.name, len(disc.train), 301)


def test_the_request_grows_with_what_takes_memory(disc: Dataset) -> None:
    def ask(training: TrainingConfig | None = None, **params: int | str) -> int:
        asked = make_plan(training=training).request(params, disc).memory_bytes
        assert asked is not None
        return asked

    small = ask(depth=2, width=16, batch_size=32)
    n_weights = 2048 * 2048
    assert ask(depth=2, width=2048, batch_size=32) > small + n_weights * 4 * 4
    assert ask(depth=2, width=16, batch_size=256) > small
    assert ask(optimizer="adam", width=2048) > ask(optimizer="sgd", width=2048)
    assert ask(TrainingConfig(precision=Precision.float64)) > ask()


def test_the_request_of_a_users_objective_is_not_known(disc: Dataset) -> None:
    assert python_plan(f"{HERE}:declared").request({}, None) == UNKNOWN_REQUEST
    assert make_plan().request({"depth": "deep"}, disc) == UNKNOWN_REQUEST  # the trial will say why
