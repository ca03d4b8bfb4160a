"""How an objective is called, by its signature and the params of the space."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.errors import ConfigError
from automl.in_trial.trial_context import TrialContext, UnfitObjectiveError
from automl.objectives.function_call import (
    ObjectiveDeclaration,
    declaration_of_function,
    objective_call,
)
from automl.objectives.plan_checks import check_conditions, check_space
from tests.in_trial.reporting import make_trial
from tests.models.conftest import Listener


def trial_of(folder: Path, **params: Any) -> TrialContext:
    trial, _ = make_trial(folder, Listener())
    trial.params = params
    return trial


def only(trial: Any) -> Any:
    return (trial,)


def whatever_it_is_called(t: Any) -> Any:
    return (t,)


def annotated(lr: float, run: automl.TrialContext) -> Any:
    return (lr, run)


def named(lr: Any, width: Any = 8) -> Any:
    return (lr, width)


def both(lr: Any, width: Any, *, trial: Any) -> Any:
    return (lr, width, trial)


def trial_in_front(trial: Any, lr: Any) -> Any:
    return (trial, lr)


def with_a_setting(t: Any, verbose: bool = False) -> Any:
    return (t, verbose)


def rate(lr: float) -> Any:
    return (lr,)


def all_with_defaults(lr: Any = 1, width: Any = 2) -> Any:
    return (lr, width)


def any_params(**params: Any) -> Any:
    return tuple(sorted(params))


def trial_and_any(trial: Any, **params: Any) -> Any:
    return (trial, *sorted(params))


def wrapper(*args: Any, **kwargs: Any) -> Any:
    return (*args, *kwargs)


def config_alone(config: Any) -> Any:
    assert type(config) is dict
    return tuple(config.items())


def config_and_more(config: Any, lr: Any, data_dir: Any = "here", *, trial: Any = None) -> Any:
    return (config["width"], lr, data_dir, trial)


def by_annotation(given: dict[str, Any]) -> Any:
    return (given["lr"],)


class Trainer:
    def __call__(self, lr: Any, trial: Any) -> Any:
        return (lr, trial)

    def train(self, lr: Any) -> Any:
        return (lr,)


SPACE = {"lr": 0.1, "width": 4}
HERE = "trial"  # stands for the trial itself


@pytest.mark.parametrize(
    ("function", "params", "expected"),
    [
        (only, SPACE, (HERE,)),
        (whatever_it_is_called, SPACE, (HERE,)),
        (annotated, SPACE, (0.1, HERE)),
        (named, SPACE, (0.1, 4)),
        (named, {"lr": 0.1}, (0.1, 8)),
        (both, SPACE, (0.1, 4, HERE)),
        (trial_in_front, SPACE, (HERE, 0.1)),
        (with_a_setting, SPACE, (HERE, False)),
        (with_a_setting, {}, (HERE, False)),
        (all_with_defaults, {"width": 4}, (1, 4)),
        (any_params, SPACE, ("lr", "width")),
        (trial_and_any, SPACE, (HERE, "lr", "width")),
        (wrapper, SPACE, (HERE,)),
        (config_alone, SPACE, (("lr", 0.1), ("width", 4))),
        (config_alone, {"config": {}}, ()),
        (config_and_more, SPACE, (4, 0.1, "here", HERE)),
        (by_annotation, SPACE, (0.1,)),
        (Trainer(), SPACE, (0.1, HERE)),
        (Trainer().train, {"lr": 0.1}, (0.1,)),
        (functools.partial(both, width=7), {"lr": 0.1}, (0.1, 7, HERE)),
        (lambda lr: (lr,), {"lr": 0.1}, (0.1,)),
    ],
)
def test_an_argument_is_a_param_or_the_trial(
    tmp_path: Path, function: Callable[..., Any], params: dict[str, Any], expected: Any
) -> None:
    trial = trial_of(tmp_path, **params)
    given = objective_call(function, params, "objective.target=x")(function, trial)
    assert given == tuple(trial if value is HERE else value for value in expected)


@pytest.mark.parametrize(
    ("function", "space", "message"),
    [
        (named, ["lr", "widht"], r"space\.widht: unknown here; the objective takes: lr, width\. D"),
        (named, ["width"], r"space: lr not there, which the objective requires"),
        (both, ["lr"], r"space: width not there"),
        (rate, ["width"], r"space\.width: unknown here; the objective takes: lr"),
        (with_a_setting, ["verbose"], r"space: t not there"),
        (lambda: 0.0, ["lr"], r"space\.lr: unknown here; the objective takes: nothing"),
    ],
)
def test_a_wrong_space_is_refused_from_the_signature(
    function: Callable[..., Any], space: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_space(
            declaration_of_function(function, space, "objective.target=x"), space, "val_loss"
        )


@pytest.mark.parametrize(
    "function", [lambda lr: lr, lambda lr, verbose=False: lr, lambda lr: (lambda: lr**2)()]
)
def test_an_argument_that_is_nearly_a_param_is_not_the_trial(function: Callable[..., Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"x: takes lr, the space has lrr\. Give both one name; .*"
    ):
        declaration_of_function(function, ["width", "lrr"], "x")


def reports_deep_inside(config: dict[str, Any]) -> None:
    for _ in range(2):
        automl.report({"val_loss": config["lr"]})
    automl.report({"train_loss": 0.0}, 1)
    automl.report({"val_loss": 0.0}, step=7)
    automl.report({"val_loss": 0.25})


def test_a_report_without_the_trial_is_of_the_running_one_and_counts_steps(tmp_path: Path) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    trial.params = {"lr": 0.5}
    objective_call(reports_deep_inside, ["lr"], "x")(reports_deep_inside, trial)
    assert listener.reports == [
        *((0, {"val_loss": 0.5}), (1, {"val_loss": 0.5}), (1, {"train_loss": 0.0})),
        *((7, {"val_loss": 0.0}), (8, {"val_loss": 0.25})),
    ]
    with pytest.raises(automl.AutoMLError, match=r"no trial runs in this thread.*trial\.report"):
        automl.report({"val_loss": 1.0})


def test_the_order_of_a_report_without_the_trial_is_said(tmp_path: Path) -> None:
    def swapped(trial: Any) -> None:
        automl.report(0, {"val_loss": 1.0})  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="the metrics come first, as a dict"):
        objective_call(swapped, [], "x")(swapped, trial_of(tmp_path))


def test_another_thread_reports_by_the_trial_itself(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def look() -> None:
        try:
            automl.report({"val_loss": 1.0})
        except automl.AutoMLError as error:
            errors.append(error)

    def starts_a_thread(trial: Any) -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    objective_call(starts_a_thread, [], "x")(starts_a_thread, trial_of(tmp_path))
    assert "to another thread or process give the trial itself" in str(errors[0])


def test_what_uses_a_trial_is_given_it_whatever_its_argument_is_called(tmp_path: Path) -> None:
    trial = trial_of(tmp_path, lrr=0.5)
    call = objective_call(lambda lr: lr.params["lrr"], ["lrr"], "x")
    assert call(lambda lr: lr.params["lrr"], trial) == 0.5


@pytest.mark.parametrize("function", [lambda x: x, lambda x: x**2, lambda x: float(x)])
def test_who_takes_the_trial_for_a_param_is_told_which_there_are(
    tmp_path: Path, function: Callable[..., Any]
) -> None:
    call = objective_call(function, ["width"], "x")
    with pytest.raises(UnfitObjectiveError, match="takes x, the space has width: x was given the"):
        call(function, trial_of(tmp_path, width=4))


def test_who_is_given_the_trial_may_look_up_any_param() -> None:
    check_space(
        declaration_of_function(both, ["lr", "width", "depth"], "x"), ["lr", "width", "depth"], ""
    )
    check_space(declaration_of_function(any_params, ["lr", "depth"], "x"), ["lr", "depth"], "")


def test_a_decorators_word_counts_and_what_must_be_given_is_required() -> None:
    decorated = automl.objective(params=["lr"], optional=["width"], metrics=["a"])(named)
    assert declaration_of_function(decorated, ["lr"], "x") == ObjectiveDeclaration(
        ("lr", "width"), ("lr",), ("a",), always=("lr",)
    )
    del decorated.__automl_declared__  # type: ignore[attr-defined]


def test_a_param_under_a_condition_needs_a_default() -> None:
    declaration = declaration_of_function(named, ["lr", "width"], "x")
    check_conditions(declaration, ["width"])
    with pytest.raises(ConfigError, match=r"space\.lr: .*argument lr must always be given"):
        check_conditions(declaration, ["lr"])


def test_what_can_only_be_given_by_place_is_refused() -> None:
    def placed(trial: Any, lr: Any, /) -> None: ...

    with pytest.raises(ConfigError, match="x: its argument lr can only be given by place"):
        objective_call(placed, ["lr"], "x")
