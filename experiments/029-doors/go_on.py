"""Does a study of 500 trials that moves from Optuna's SQLite go on as well as in Optuna?

Each seed has one study of 500 trials, made by Optuna's TPE in an SQLite file. It goes on for
another 100 trials twice: in Optuna (`load_study`, a new TPE), and here (`from=`, `sampler=tpe`, as
by default). The function is closed-form, one of 024-steering. Called as

    python experiments/029-doors/go_on.py [n_seeds]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import optuna
from optuna.storages import InMemoryStorage

from automl.config import StudyConfig
from automl.search.optuna_address import parse_optuna_source
from automl.search.optuna_source import read_optuna_study
from automl.search.pruners.none import NoPruner
from automl.search.samplers.tpe import TPE
from automl.search.search_space import parse_space
from automl.search.storage import OpenStorage
from automl.search.study import Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import FinishedOutcome

sys.path.append(str(Path(__file__).resolve().parent.parent / "024-steering"))
from warm_start import FUNCTIONS, Function

N_BEFORE, N_AFTER = 500, 100
NAME = "Hartmann, 6 params"


def suggest(trial: optuna.Trial, function: Function) -> float:
    for name, entry in function.space.items():
        if "choices" in entry:
            trial.suggest_categorical(name, entry["choices"])
        elif isinstance(entry["low"], int):
            trial.suggest_int(name, entry["low"], entry["high"], log=entry.get("log", False))
        else:
            trial.suggest_float(name, entry["low"], entry["high"], log=entry.get("log", False))
    return function.value(function.units(trial.params))


def make_study(url: str, function: Function, seed: int) -> float:
    """Make the old study in a database, and return its best value."""
    sampler = optuna.samplers.TPESampler(seed=seed)
    memory = InMemoryStorage()  # a commit for each trial would take most of the time
    study = optuna.create_study(study_name="old", storage=memory, sampler=sampler)
    study.optimize(partial(suggest, function=function), n_trials=N_BEFORE)
    optuna.copy_study(from_study_name="old", from_storage=memory, to_storage=url)
    return study.best_value


def go_on_in_optuna(url: str, function: Function, seed: int) -> list[float]:
    """Return the values of the trials that Optuna adds to a copy of the study."""
    memory = InMemoryStorage()
    optuna.copy_study(from_study_name="old", from_storage=url, to_storage=memory)
    sampler = optuna.samplers.TPESampler(seed=seed + 1000)
    study = optuna.load_study(study_name="old", storage=memory, sampler=sampler)
    study.optimize(partial(suggest, function=function), n_trials=N_AFTER)
    return [float(trial.value or 0.0) for trial in study.trials[N_BEFORE:]]


def go_on_here(url: str, function: Function, seed: int) -> list[float]:
    """Return the values of the trials that a study here adds, which began with the old one."""

    def nothing() -> None:
        """Do nothing: a storage in memory has nothing to flush."""

    source = parse_optuna_source(f"{url}:old")
    assert source is not None
    rules = StudyRules(
        parse_space(function.space),
        TPE(),
        NoPruner(),
        StudyIdentity({}, {}),
        read_imported=partial(read_optuna_study, source),
    )
    opened = OpenStorage(InMemoryStorage(), "memory", nothing, nothing)
    study = Study.open(StudyConfig(name="toy", seed=seed + 1000), rules, Path(), opened)
    values = []
    for _ in range(N_AFTER):
        trial = study.ask()
        assert trial is not None
        value = function.value(function.units(trial.params))
        values.append(value)
        study.tell(trial.number, FinishedOutcome(trial.number, float(trial.number), value))
    return values


def row(name: str, pairs: Sequence[tuple[float, float, float]]) -> str:
    before, theirs, ours = (statistics.median(values) for values in zip(*pairs, strict=True))
    better = sum(o < t for _, t, o in pairs)
    worse = sum(o > t for _, t, o in pairs)
    counts = f"{better} | {worse} | {len(pairs) - better - worse}"
    return f"| {name} | {before:.5g} | {theirs:.5g} | {ours:.5g} | {counts} |"


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    n_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for function in (function for function in FUNCTIONS if function.name == NAME):
        pairs = []
        for seed in range(n_seeds):
            with tempfile.TemporaryDirectory() as folder:
                url = f"sqlite:///{folder}/old.db"
                before = make_study(url, function, seed)
                theirs = min(go_on_in_optuna(url, function, seed))
                ours = min(go_on_here(url, function, seed))
            pairs.append((before, theirs, ours))
            sys.stderr.write(f"{function.name} {seed}: {before:.6g} {theirs:.6g} {ours:.6g}\n")
        sys.stdout.write(row(f"{function.name}, the best of the new trials", pairs) + "\n")
        whole = [(before, min(before, t), min(before, o)) for before, t, o in pairs]
        sys.stdout.write(row(f"{function.name}, the best of all", whole) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
