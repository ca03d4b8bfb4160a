"""What the samplers search: closed-form functions, a choice of families, and recorded trainings."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from automl.search.search_space import SearchSpace, parse_space
from automl.trial import Params

Function: TypeAlias = Callable[[Params], float]

HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
HARTMANN_WIDTHS = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


@dataclass(frozen=True)
class Problem:
    """A space, and the value of each of its points; a lower one is better."""

    space: SearchSpace
    value: Function


def axes(n: int, low: float, high: float) -> dict[str, Any]:
    return {f"x{i}": {"low": low, "high": high} for i in range(n)}


def of_vector(function: Callable[[np.ndarray], float]) -> Function:
    return lambda params: function(np.array([float(value or 0) for value in params.values()]))


def branin(x: np.ndarray) -> float:
    a, b = x
    valley = b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6
    return float(valley**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10)


def hartmann(x: np.ndarray) -> float:
    distances = (HARTMANN_WIDTHS * (x - HARTMANN_CENTRES) ** 2).sum(1)
    return -float(HARTMANN_WEIGHTS @ np.exp(-distances))


def ackley(x: np.ndarray) -> float:
    x = x - 3.7  # the optimum is not in the middle of the space
    waves = math.exp(np.cos(2 * math.pi * x).mean())
    return -20 * math.exp(-0.2 * math.sqrt((x**2).mean())) - waves + 20 + math.e


def rosenbrock(x: np.ndarray) -> float:
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def bowl(params: Params) -> float:
    """That of experiments/003-asking-ahead: whole numbers, log scales, a choice; the least is 0."""
    depth, width, lr = (float(params[name] or 0) for name in ("depth", "width", "lr"))
    deep = (depth - 4) / (6 - 2)
    wide = math.log(width / 24) / math.log(64 / 8)
    fast = math.log(lr / 0.1) / math.log(0.5 / 1e-3)
    penalty = {50: 0.0, 100: 0.05, 200: 0.15}[int(params["batch_size"] or 0)]
    return deep**2 + wide**2 + 4 * (fast + deep / 2) ** 2 + penalty


def choices(params: Params) -> float:
    """Two choices that shift the best place of two numbers; the least is 0."""
    shift = {"a": 0.0, "b": 0.3, "c": 0.6, "d": 0.9}
    x, y = float(params["x"] or 0), float(params["y"] or 0)
    at, other = shift[str(params["kind"])], {"u": 0.0, "v": 0.2, "w": 0.4}[str(params["mode"])]
    return 2 * (x - at) ** 2 + (y - at / 2) ** 2 + 0.3 * abs(at - 0.3) + 0.2 * other


def families(params: Params) -> float:
    """Three families with params of their own, the best of which is the hardest; the least 0."""
    numbers = {name: float(v or 0) for name, v in params.items() if name not in ("family", "kind")}
    match params["family"]:
        case "linear":
            return 0.3 + 0.02 * (math.log10(numbers["l2"]) - 1) ** 2
        case "trees":
            forest = 0.05 if params["kind"] == "forest" else 0.0
            leaf = math.log(numbers["leaf"] / 5) ** 2
            return 0.1 + forest + 0.05 * leaf + 0.2 * (numbers["share"] - 0.6) ** 2
        case _:
            lr = math.log10(numbers["lr"] / 3e-3)
            width = math.log2(numbers["width"] / 180) / 4
            return (
                0.3 * lr**2 + 0.2 * (width + lr / 2) ** 2 + 0.3 * (numbers["dropout"] - 0.15) ** 2
            )


FAMILIES = {
    "family": {"choices": ["linear", "trees", "net"]},
    "l2": {"low": 1e-3, "high": 1e5, "log": True, "when": {"family": "linear"}},
    "kind": {"choices": ["extra", "forest"], "when": {"family": "trees"}},
    "leaf": {"low": 1, "high": 50, "log": True, "when": {"family": "trees"}},
    "share": {"low": 0.1, "high": 1.0, "when": {"family": "trees"}},
    "lr": {"low": 1e-4, "high": 1e-1, "log": True, "when": {"family": "net"}},
    "width": {"low": 16, "high": 512, "log": True, "when": {"family": "net"}},
    "dropout": {"low": 0.0, "high": 0.5, "when": {"family": "net"}},
}
BOWL = {
    "depth": {"low": 2, "high": 6},
    "width": {"low": 8, "high": 64, "log": True},
    "lr": {"low": 1e-3, "high": 0.5, "log": True},
    "batch_size": {"choices": [50, 100, 200]},
}
CHOICES = {
    "kind": {"choices": ["a", "b", "c", "d"]},
    "mode": {"choices": ["u", "v", "w"]},
    "x": {"low": 0.0, "high": 1.0},
    "y": {"low": 0.0, "high": 1.0},
}
BRANIN = {"x": {"low": -5.0, "high": 10.0}, "y": {"low": 0.0, "high": 15.0}}
CLOSED: Mapping[str, Problem] = {
    "branin": Problem(parse_space(BRANIN), of_vector(branin)),
    "hartmann": Problem(parse_space(axes(6, 0.0, 1.0)), of_vector(hartmann)),
    "ackley": Problem(parse_space(axes(5, -10.0, 20.0)), of_vector(ackley)),
    "rosenbrock": Problem(parse_space(axes(4, -2.0, 2.0)), of_vector(rosenbrock)),
    "bowl": Problem(parse_space(BOWL), bowl),
    "choices": Problem(parse_space(CHOICES), choices),
    "families": Problem(parse_space(FAMILIES), families),
}
RECORDED = ("digits", "adult", "digits_full")
"""Studies of random trials that README.md says how to make."""


@functools.cache
def problem(name: str, studies: Path) -> Problem:
    """Return a problem by its name; `studies` is the folder of the recorded ones."""
    return CLOSED[name] if name in CLOSED else recorded(name, studies)


def recorded(name: str, studies: Path) -> Problem:
    """Return a forest that has learned the recorded values (Eggensperger et al., 2015)."""
    import yaml
    from sklearn.ensemble import ExtraTreesRegressor

    from automl.api.study_handle import StudyHandle

    config = yaml.safe_load((studies / name / "config.yaml").read_text())
    space = parse_space(config["space"])
    trials = StudyHandle(studies / name).trials().dropna(subset=["value"])
    searched = [param for param in space.params if param.is_searched]
    rows = [
        [place(param.domain, row.get(f"params.{param.name}")) for param in searched]
        for row in trials.to_dict("records")
    ]
    forest = ExtraTreesRegressor(64, min_samples_leaf=2, random_state=0)
    forest.fit(np.array(rows), np.log(trials["value"]))

    def value(params: Params) -> float:
        row = [place(param.domain, params.get(param.name)) for param in searched]
        return math.exp(forest.predict(np.array([row]))[0])

    return Problem(space, value)


def place(domain: Any, value: Any) -> float:
    """Return a param as a number; -1: the trial lacks it."""
    if value is None or value != value:
        return -1.0
    if hasattr(domain, "values"):
        return float(next(i for i, choice in enumerate(domain.values) if choice == value))
    return math.log(value) if domain.log else float(value)
