"""Two metrics: the hypervolume after 25, 50 and 100 trials, against Optuna's samplers.

python experiments/022-search/two_metrics.py gp tpe nsga2 random optuna-nsga2 optuna-tpe
python experiments/022-search/two_metrics.py gp@halving tpe@halving
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna

from automl.config import StudyConfig
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.none import NoPruner
from automl.search.samplers import samplers
from automl.search.search_space import parse_space
from automl.search.storage import silence_optuna
from automl.search.study import Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import FinishedOutcome, MetricsReported, PrunedOutcome, Verdict
from automl.trial.study_metrics import hypervolume

RESULTS = Path(__file__).with_name("two_metrics.json")
AT = (25, 50, 100)
N_STEPS = 27
UNIT = {"low": 0.0, "high": 1.0}
Params = Mapping[str, Any]
Goal = Callable[[Params], tuple[float, float]]


def zdt(power: Callable[[float, float], float]) -> Goal:
    def goal(params: Params) -> tuple[float, float]:
        first, *rest = (float(params[f"x{n}"]) for n in range(5))
        g = 1 + 9 * statistics.mean(rest)
        return first, g * power(first, g)

    return goal


def network(params: Params) -> tuple[float, float]:
    """Return an error and the log10 of the bytes of a network, by a made-up formula."""
    width, depth, lr = float(params["width"]), int(params["depth"]), float(params["lr"])
    size = 64 * width + (depth - 1) * width * width + 10 * width
    fit = 0.02 + 0.5 * math.exp(-math.log10(size) * 0.9) + 0.01 * (depth - 2) ** 2
    return fit + 0.05 * (math.log10(lr) + 2.3) ** 2, math.log10(4 * size)


X5 = {f"x{n}": UNIT for n in range(5)}
PROBLEMS: dict[str, tuple[Mapping[str, Any], Goal, tuple[float, float]]] = {
    "zdt1": (X5, zdt(lambda f, g: 1 - math.sqrt(f / g)), (1.1, 11.0)),
    "zdt2": (X5, zdt(lambda f, g: 1 - (f / g) ** 2), (1.1, 11.0)),
    "zdt3": (
        X5,
        zdt(lambda f, g: 1 - math.sqrt(f / g) - f / g * math.sin(10 * math.pi * f)),
        (1.1, 11.0),
    ),
    "network": (
        {
            "width": {"low": 4, "high": 512, "log": True},
            "depth": {"low": 1, "high": 6},
            "lr": {"low": 1e-4, "high": 1e-1, "log": True},
        },
        network,
        (0.6, 7.0),
    ),
}


def report(values: tuple[float, float], step: int) -> dict[str, float]:
    """Return what a trial reports at a step: the first metric falls towards its value."""
    share = (step + 1) / N_STEPS
    return {"a": values[0] + 0.5 * (1 / share - 1) * (0.2 + values[0]), "b": values[1]}


def ours(setting: str, problem: str, seed: int, n_trials: int) -> tuple[list[Any], int]:
    """Return the values of all finished trials, None for others, and the number of steps."""
    name, _, pruned = setting.partition("@")
    entries, goal, _ = PROBLEMS[problem]
    space = parse_space(entries)
    sampler = samplers()["random" if name == "random" else name]()
    pruner = SuccessiveHalving().for_length(N_STEPS) if pruned else NoPruner()
    rules = StudyRules(space, sampler, pruner, StudyIdentity({}, {}))
    config = StudyConfig(name="two", metric=["a", "b"], seed=seed)
    found: list[Any] = []
    n_steps = 0
    with tempfile.TemporaryDirectory() as folder:
        study = Study.open(config, rules, Path(folder))
        for _ in range(n_trials):
            asked = study.ask()
            assert asked is not None
            number, values = asked.number, goal(asked.params)
            end, step = None, 0
            for step in range(N_STEPS if pruned else 0):
                reported = report(values, step)
                verdict = study.report([MetricsReported(number, 0.0, step, reported)])
                if verdict[number] is Verdict.PRUNE:
                    end = PrunedOutcome(number, 0.0, step, reported["a"], reported)
                    break
            n_steps += step + 1 if pruned else N_STEPS
            whole = {"a": values[0], "b": values[1]}
            study.tell(number, end or FinishedOutcome(number, 0.0, values[0], (), whole))
            found.append(values if end is None else None)
        study.close()
    return found, n_steps


def optunas(setting: str, problem: str, seed: int, n_trials: int) -> tuple[list[Any], int]:
    entries, goal, _ = PROBLEMS[problem]
    silence_optuna()
    kinds = {
        "optuna-tpe": optuna.samplers.TPESampler,
        "optuna-nsga2": optuna.samplers.NSGAIISampler,
    }
    kind: Any = kinds[setting]
    study = optuna.create_study(directions=["minimize"] * 2, sampler=kind(seed=seed))

    def suggest(trial: optuna.Trial) -> tuple[float, float]:
        def value(name: str, entry: Mapping[str, Any]) -> Any:
            log, kind = entry.get("log", False), type(entry["low"])
            draw = trial.suggest_int if kind is int else trial.suggest_float
            return draw(name, entry["low"], entry["high"], log=log)

        return goal({name: value(name, entry) for name, entry in entries.items()})

    study.optimize(suggest, n_trials=n_trials)
    return [tuple(t.values or ()) for t in study.trials], n_trials * N_STEPS


def volumes(values: Sequence[Any], problem: str) -> list[float]:
    reference = PROBLEMS[problem][2]
    return [hypervolume([v for v in values[:n] if v is not None], reference) for n in AT]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--problems", nargs="*", default=[*PROBLEMS])
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed in range(arguments.seeds):
        for problem in arguments.problems:
            for setting in arguments.settings:
                key = f"{problem} {setting} {seed}"
                if key in results:
                    continue
                run = optunas if setting.startswith("optuna") else ours
                values, n_steps = run(setting, problem, seed, max(AT))
                results[key] = {"volumes": volumes(values, problem), "steps": n_steps}
                lines = (f"{json.dumps(k)}: {json.dumps(row)}" for k, row in results.items())
                RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print_table(results)


def print_table(results: Mapping[str, Any]) -> None:
    problems = [p for p in PROBLEMS if any(key.startswith(f"{p} ") for key in results)]
    settings = list(dict.fromkeys(key.split()[1] for key in results))
    dashes = "---|" * (len(problems) + 2)
    sys.stdout.write(f"| setting | {' | '.join(problems)} | epochs |\n|{dashes}\n")
    for setting in settings:
        cells = []
        for problem in problems:
            rows = [v for k, v in results.items() if k.split()[:2] == [problem, setting]]
            means = [statistics.mean(row["volumes"][n] for row in rows) for n in range(len(AT))]
            cells.append(" / ".join(f"{mean:.4g}" for mean in means) if rows else "")
        all_rows = [v for k, v in results.items() if k.split()[1] == setting]
        share = statistics.mean(row["steps"] for row in all_rows) / (max(AT) * N_STEPS)
        sys.stdout.write(f"| {setting} | {' | '.join(cells)} | {share:.2f} |\n")


if __name__ == "__main__":
    main()
