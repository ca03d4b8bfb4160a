"""The command of a trial, from the command line of an application."""

from __future__ import annotations

import pytest

from automl.api.hydra_sweeper.program_command import program_prefix, sweep_dir_of, trial_command
from automl.api.hydra_sweeper.sweeper_settings import Goal, SweepSpace
from automl.errors import ConfigError
from automl.objectives.program.program_arguments import (
    ProgramInputs,
    check_command_params,
    command_words,
    program_arguments,
)
from automl.trial import Params

GOAL = Goal(("loss",), ("minimize",), is_named=False)
INPUTS = ProgramInputs(seed=1, trial=7, checkpoint_dir="/c", trial_dir="/t", n_devices=1, json="/j")


def test_what_started_the_application_starts_each_trial() -> None:
    words = ["-m", "lr=1,2"]
    assert program_prefix(["python", "-u", "train.py", *words], words) == [
        "python",
        "-u",
        "train.py",
    ]
    assert program_prefix(["python", "-m", "pkg.train", *words], words)[1:] == ["-m", "pkg.train"]
    for started in (["python"], ["pytest", "-x"], ["python", "train.py", "lr=3"]):
        with pytest.raises(
            ConfigError, match=r"Start it as python train\.py -m hydra/sweeper=automl"
        ):
            program_prefix(started, words)


def test_a_trial_is_one_run_with_its_overrides_and_a_folder_of_its_own() -> None:
    space = SweepSpace({"lr": {}, "seed": {}, "layers": {}}, ("+x={a: 1}", "~y"), ("layers",))
    overrides = (
        "hydra/sweeper=automl",
        "hydra.sweeper.n_trials=3",
        "hydra/sweeper/sampler=tpe",
        "hydra/launcher=basic",
        "hydra.mode=MULTIRUN",
        "hydra.sweep.subdir=of-${hydra.job.num}",
        "++hydra.job.chdir=true",
    )
    flags = {"config-name": "other", "config-dir": None}
    command = trial_command(["python", "train.py"], flags, overrides, space, GOAL, "out of/here")
    check_command_params(command, space.entries)
    params: Params = {"lr": 0.1, "seed": 3, "layers": "[1,2]"}
    assert program_arguments(command_words(command), params, INPUTS) == [
        "python",
        "train.py",
        "--config-name=other",
        "hydra.sweep.subdir=of-${hydra.job.num}",
        "++hydra.job.chdir=true",
        "+x={a: 1}",
        "~y",
        "hydra.mode=RUN",
        "hydra.sweep.dir='out of/here'",
        "hydra.run.dir=${hydra.sweep.dir}/${hydra.sweep.subdir}",
        "++hydra.callbacks.automl={_target_:hydra_plugins.automl_sweeper.ReturnedValue,"
        "metrics:[loss],is_needed:true}",
        "hydra.job.num=7",
        "hydra.job.id=7",
        "layers=[1,2]",
        "lr=0.1",
        "seed=3",
    ]


@pytest.mark.parametrize("folder", ["multirun/2026-11-28/20-10-49", "out of/here", "it's/{here}"])
def test_a_study_that_goes_on_keeps_its_folder(folder: str) -> None:
    space = SweepSpace({"lr": {}}, (), ())
    command = trial_command(["python", "train.py"], {}, (), space, GOAL, folder)
    assert sweep_dir_of(command) == folder
    assert sweep_dir_of("python train.py {overrides}") is None
