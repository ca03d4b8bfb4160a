"""Hydra applications of the user's that run sweeps: programs of their own, and in this process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import DictConfig, OmegaConf

import automl
from automl.record.studies import read_study
from automl.record.study_files import StudyFiles
from tests.end_to_end.program import Program
from tests.manuals import ROOT

CONFIG = """
defaults:
  - /sweep@automl
  - override /space@automl.space: empty
  - override /objective@automl.objective: python
  - _self_
epochs: 3
automl:
  objective: {target: script:train}
  space: {lr: {low: 0.1, high: 1.0}, epochs: '${epochs}'}
  devices: {only: cpu}
"""
APPLICATION = """
import time
import hydra
import automl

automl.register_configs()

def train(lr, epochs, *, trial):
    for epoch in range(epochs):
        trial.report(epoch, {"val_loss": lr / (epoch + 1)})
        time.sleep(epochs / 100)  # of a hundred epochs one takes a second

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    study = automl.sweep(cfg.automl)
    print("best", study.best.params["epochs"], "of", len(study.trials()), "of", study.name)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def conf(folder: Path) -> Path:
    (folder / "conf").mkdir()
    (folder / "conf" / "config.yaml").write_text(CONFIG)
    return folder / "conf"


@pytest.mark.slow
@pytest.mark.usefixtures("conf")
def test_an_application_that_was_killed_goes_on_and_so_does_the_command_line(
    program: Program,
) -> None:
    words = ("automl.study.name=mine", "automl.study.n_trials=3", "sampler@automl.sampler=random")
    study = StudyFiles(program.folder / "studies" / "mine")
    killed = program.start_script(APPLICATION, *words, "epochs=100")

    def has_reported() -> bool:
        there = study.events.exists()
        return there and any(t.n_reports for t in read_study(study.path).trials.values())

    killed.wait_until(has_reported, "a trial reports")
    killed.kill()
    refused = program.start_script(APPLICATION, *words).wait()
    assert refused.code == 1
    assert "space.epochs: 100 in the study, 3 now" in refused.stderr
    quick = APPLICATION.replace("time.sleep(epochs / 100)", "pass")
    done = program.start_script(quick, *words, "epochs=100", "automl.study.n_trials=4").wait()
    assert (done.code, done.stdout.splitlines()[-1]) == (0, "best 100 of 4 of mine"), done.stderr
    resumed = program.start("resume", "study.name=mine", "study.n_trials=5").wait()
    assert (resumed.code, resumed.stderr) == (0, "")
    trials = read_study(study.path).trials
    assert sorted(trials) == list(range(5))
    assert {trial.params["epochs"] for trial in trials.values()} == {100}
    assert "sampler: random_schema" in study.config.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("conf")
def test_each_job_of_a_multirun_is_a_study(program: Program) -> None:
    words = ("--multirun", "epochs=1,2", "automl.study.n_trials=2")
    done = program.start_script(APPLICATION, *words, "automl.study.name=of-${epochs}").wait()
    assert done.code == 0, done.stderr
    assert re.findall(r"^best \d.*", done.stdout, re.MULTILINE) == [
        "best 1 of 2 of of-1",
        "best 2 of 2 of of-2",
    ]


@pytest.mark.slow
def test_the_manuals_application_runs(program: Program) -> None:
    page = (ROOT / "docs" / "how-to" / "hydra-application.md").read_text("utf-8")
    config, source, line = re.findall(r"^```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (program.folder / "conf").mkdir()
    (program.folder / "conf" / "config.yaml").write_text(config)
    (program.folder / "my_app.py").write_text(source)
    python, *words = shlex.split(line)
    assert python == "python"
    fewer = ("automl.study.n_trials=3", "automl.devices.only=cpu")
    done = program.start_python(*words, *fewer).wait()
    assert done.code == 0, done.stderr
    assert "sine: 3 finished" in done.stdout
    assert re.fullmatch(r"\{'lr': .*, 'epochs': 30\}", done.stdout.splitlines()[-1])


# --- in this process ------------------------------------------------------------------------------

Application = Callable[..., DictConfig]


@pytest.fixture
def application(conf: Path) -> Iterator[Application]:
    automl.register_configs()
    inline = ("automl.execution.kind=inline", "automl.study.n_trials=2")
    with hydra.initialize_config_dir(str(conf), version_base="1.3"):
        yield lambda *words: hydra.compose("config", [*inline, *words])


def holding(config: DictConfig) -> Callable[..., Any]:
    """A function that holds its application's whole config, as one inside of `main` does."""

    def train(lr: float, epochs: int) -> float:
        return lr / int(config.epochs) * epochs

    return train


@pytest.mark.slow
def test_a_function_that_holds_the_applications_config_goes_on(application: Application) -> None:
    first = application()
    study = automl.sweep(holding(first), config=first.automl, name="held")
    assert len(study.trials()) == 2
    more = application("automl.study.n_trials=3", "automl.admission.headroom=1MiB")
    assert len(automl.sweep(holding(more), config=more.automl, name="held").trials()) == 3
    other = application("epochs=4", "automl.space.epochs=3", "automl.study.n_trials=4")
    with pytest.raises(automl.AutoMLError, match=r"objective\.parts\.closure config: \"DictConfig"):
        automl.sweep(holding(other), config=other.automl, name="held")


def test_what_is_given_beside_a_config_wins_over_it(application: Application) -> None:
    config = application("automl.study.name=written").automl
    study = automl.sweep(
        lambda lr: lr, {"lr": [5, 6]}, config=config, name="given", overrides=["study.n_trials=1"]
    )
    assert study.name == "given"
    assert set(study.trials()["params.lr"]) <= {5, 6}
    assert automl.sweep(lambda lr, epochs: lr, config=config).name == "written"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"automl\.sweep\(None\): give a function, not a NoneType, or what a Hydra app"),
        (OmegaConf.create({"study": {}}), r"this DictConfig was not composed from ours: call aut"),
        ({}, r"this dict was not composed from ours: call automl\.register_configs\(\) before"),
    ],
)
def test_what_is_no_config_of_ours_is_refused(folder: Path, given: Any, message: str) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(automl.AutoMLError, match=message):
        automl.sweep(given)
    assert sorted(folder.rglob("*")) == before
