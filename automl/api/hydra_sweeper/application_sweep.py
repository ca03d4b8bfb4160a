"""Runs the sweep of a Hydra application's `--multirun`: settings in, a study and its results out.

The sweep itself is `automl.sweep` with a program as the objective. The folder of a multirun is kept
as Hydra's own sweeper keeps it: its config, the trials' folders, and the results at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf

from automl.api.hydra_sweeper.program_command import program_prefix, sweep_dir_of, trial_command
from automl.api.hydra_sweeper.sweeper_settings import (
    find_goal,
    find_space,
    plain_settings,
    setting_lines,
)
from automl.api.python_values import lines_of, store_space
from automl.api.study_handle import COMPOSE_LOCK, StudyHandle, compose_for_call
from automl.api.sweep_call import run_composed_sweep, study_exists
from automl.cli.base import find_studies_folder
from automl.cli.space_overrides import override_text
from automl.cli.stored_file import read_stored_file
from automl.errors import AutoMLError, ConfigError
from automl.record.signal_receiver import INTERRUPTED_CODE
from automl.record.studies import read_study
from automl.record.study_directory import make_study_name
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.trial import TrialState

RESULTS_FILE = "optimization_results.yaml"
"""The results in the sweep's folder, where hydra-optuna-sweeper writes them, too."""
_FLAGS = ("config_path", "config_name", "config_dir")
"""Hydra's flags that say what an application is composed from."""
_OWN_LAUNCHER = "basic_launcher.BasicLauncher"


def run_application_sweep(
    settings: Mapping[str, Any],
    config: DictConfig,
    arguments: Sequence[str],
    config_loader: ConfigLoader,
) -> None:
    """Run the sweep to its end. Raises CompactHydraException, which Hydra shows without a
    traceback, and SystemExit after Ctrl-C."""
    try:
        _run(plain_settings(settings), config, arguments, config_loader)
    except AutoMLError as error:
        raise CompactHydraException(str(error)) from error
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED_CODE) from None  # the sweep has said how to go on


def _run(
    settings: Mapping[str, Any],
    config: DictConfig,
    arguments: Sequence[str],
    config_loader: ConfigLoader,
) -> None:
    _refuse_other_launcher(config)
    goal = find_goal(settings)
    space = find_space(settings, arguments, OverridesParser.create(config_loader))
    lines = setting_lines(settings, goal)
    given = vars(get_args_parser().parse_args(sys.argv[1:]))
    name = settings["study_name"] or make_study_name()
    exists = study_exists(name, lines)
    stored_dir = _stored_sweep_dir(name, lines) if exists else None
    sweep_dir = stored_dir or str(config.hydra.sweep.dir)
    command = trial_command(
        [sys.executable, *program_prefix(sys.orig_argv, sys.argv[1:])[1:]],
        {flag.replace("_", "-"): given[flag] for flag in _FLAGS},
        list(config.hydra.overrides.hydra),
        space,
        goal,
        sweep_dir,
    )
    folder = Path(sweep_dir)
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, folder / "multirun.yaml")
    with COMPOSE_LOCK:
        composed = compose_for_call(
            "resume" if exists else "sweep",
            [
                f"study.name={override_text(name)}",
                *lines_of({"train": command}),
                store_space(space.entries),
                *lines,
            ],
        )
    study = run_composed_sweep(composed, resume=exists, from_python=False)
    _conclude(study, folder, settings["max_failure_rate"])


def _refuse_other_launcher(config: DictConfig) -> None:
    target = str(config.hydra.launcher.get("_target_"))
    if not target.endswith(_OWN_LAUNCHER):
        chosen = config.hydra.runtime.choices.get("hydra/launcher")
        raise ConfigError(
            f"hydra/launcher={chosen}: hydra/sweeper=automl starts the trials itself, where there "
            "is room for them. Leave the launcher out, or give hydra/launcher=basic; "
            "hydra.sweeper.n_jobs=4 limits how many run at once."
        )


def _stored_sweep_dir(name: str, lines: Sequence[str]) -> str | None:
    """Return the sweep's folder that an existing study began with, whatever its time of day."""
    stored = read_stored_file(StudyFiles(find_studies_folder(lines) / name))
    return sweep_dir_of(str(OmegaConf.select(stored, "objective.command") or ""))


def _conclude(study: StudyHandle, folder: Path, max_failure_rate: float | None) -> None:
    """Write the results. Raises AutoMLError where more trials failed than are allowed."""
    record = read_study(study.path)
    OmegaConf.save(OmegaConf.create(results(record)), folder / RESULTS_FILE)
    states = [trial.state for trial in record.trials.values()]
    n_failed = states.count(TrialState.FAILED)
    if max_failure_rate is not None and n_failed > max_failure_rate * len(states):
        raise AutoMLError(
            f"study {study.name}: {n_failed} of {len(states)} trials failed, and "
            f"hydra.sweeper.max_failure_rate={max_failure_rate:g}. Their causes: "
            f"python -m automl status {study.name} trials=all"
        )


def results(record: StudyRecord) -> dict[str, Any]:
    """Return the best trial, or the front of several metrics, as hydra-optuna-sweeper names it."""
    if record.metrics.are_several:
        names = [metric.name for metric in record.metrics.metrics]
        solutions = [
            {"params": dict(trial.params), "values": [trial.values[name] for name in names]}
            for trial in record.front()
        ]
        return {"name": "automl", "solutions": solutions}
    best = record.best()
    if best is None:
        return {"name": "automl"}
    return {"name": "automl", "best_params": dict(best.params), "best_value": best.value}
