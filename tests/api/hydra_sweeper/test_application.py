"""Applications of Hydra that sweep by `--multirun hydra/sweeper=automl`, unchanged.

The first ones are those of hydra-optuna-sweeper's own tests, as far as they apply: its batches, its
launchers and its function `custom_search_space` do not.
"""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest
from omegaconf import OmegaConf

from automl.api.hydra_sweeper.application_sweep import RESULTS_FILE
from automl.record.studies import read_study
from automl.record.study_files import StudyFiles
from automl.trial import TrialState
from tests.api.hydra_sweeper.conftest import PLUGIN_PATH
from tests.end_to_end.program import Done, Program

SPHERE_CONFIG = """
defaults:
  - override hydra/sweeper: automl
  - override hydra/sweeper/sampler: tpe
hydra:
  sweep: {dir: out}
  sweeper:
    sampler: {seed: 123}
    direction: minimize
    study_name: sphere
    storage: null
    n_trials: 4
    n_jobs: 2
    max_failure_rate: 0.0
    params: {x: 'range(-5.5, 5.5, step=0.5)', y: 'choice(-5 ,0 ,5)'}
x: 1
y: 1
z: 1
error: false
"""
SPHERE = """
import hydra

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def sphere(cfg):
    if cfg.get("error", False):
        raise RuntimeError("cfg.error is True")
    return cfg.x**2 + cfg.y**2

if __name__ == "__main__":
    sphere()
"""
TRAINING = """
import time
from pathlib import Path
import hydra
from hydra.core.hydra_config import HydraConfig

@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    out = Path(HydraConfig.get().runtime.output_dir)
    for epoch in range(6):
        print(f"epoch {epoch} val_loss: {cfg.lr / (epoch + 1)}", flush=True)
        with (out / "epochs").open("a") as file:
            file.write("x")
        while Path("wait").exists():
            time.sleep(0.01)

if __name__ == "__main__":
    main()
"""
LR = "+lr=tag(log,interval(1e-4,1e-1))"
AUTOML = "hydra/sweeper=automl"


def sweep(program: Program, source: str, *words: str) -> Done:
    return program.start_script(source, "--multirun", *words).wait()


def with_config(program: Program, text: str = SPHERE_CONFIG) -> None:
    (program.folder / "conf").mkdir()
    (program.folder / "conf" / "config.yaml").write_text(text)


def results(program: Program) -> Any:
    return OmegaConf.to_container(OmegaConf.load(program.folder / "out" / RESULTS_FILE))


def states(program: Program, name: str) -> list[TrialState]:
    trials = read_study(program.folder / "studies" / name).trials
    return [trials[number].state for number in sorted(trials)]


def test_the_best_of_an_application_that_returns_its_value(program: Program) -> None:
    with_config(program)
    done = sweep(program, SPHERE, "x=choice(0,1,2)", "y=0", "~z", "hydra.job.chdir=true")
    assert (done.code, done.stderr) == (0, "")
    assert "if it is interrupted: python -m automl resume sphere" in done.stdout
    record = read_study(program.folder / "studies" / "sphere")
    best = record.best()
    assert best is not None
    found = {"name": "automl", "best_params": dict(best.params), "best_value": best.value}
    assert results(program) == found
    assert list(best.params) == ["x"]
    for trial in record.trials.values():
        assert isinstance(trial.params["x"], int)
        assert trial.value == trial.params["x"] ** 2
    folders = [path.name for path in (program.folder / "out").iterdir() if path.is_dir()]
    assert sorted(folders) == ["0", "1", "2", "3"]
    overrides = OmegaConf.load(program.folder / "out" / "2" / ".hydra" / "overrides.yaml")
    assert set(overrides) == {f"x={record.trials[2].params['x']}", "y=0", "~z"}
    assert (program.folder / "out" / "multirun.yaml").exists()


@pytest.mark.slow
def test_every_point_of_a_grid_once(program: Program) -> None:
    params = "{x: 'choice(-1, 1)', y: 'range(-1.0, 1.0, step=1)', z: 'choice(\"foo\", \"bar\")'}"
    text = re.sub(r"params: .*", f"params: {params}", SPHERE_CONFIG).replace(": tpe", ": grid")
    with_config(program, text)
    done = sweep(program, SPHERE, "hydra.sweeper.n_trials=20")
    assert done.code == 0, done.stderr
    trials = read_study(program.folder / "studies" / "sphere").trials.values()
    assert len({tuple(trial.params.values()) for trial in trials}) == len(trials) == 12
    assert results(program)["best_value"] == 1
    assert results(program)["best_params"]["z"] in ("foo", "bar")


@pytest.mark.slow
def test_an_application_that_returns_two_values_has_a_front(program: Program) -> None:
    source = SPHERE.replace(
        "return cfg.x**2 + cfg.y**2", "return 4 * cfg.x**2 + 4 * cfg.y**2, (cfg.x - 5) ** 2"
    )
    text = SPHERE_CONFIG.replace("direction: minimize", "direction: [minimize, minimize]")
    with_config(program, text.replace(": tpe", ": nsgaii"))
    done = sweep(program, source, "x=range(0, 5)", "y=range(0, 3)", "hydra.sweeper.n_trials=8")
    assert done.code == 0, done.stderr
    solutions = results(program)["solutions"]
    assert solutions
    for one in solutions:
        x, y = one["params"]["x"], one["params"]["y"]
        assert one["values"] == [4 * x**2 + 4 * y**2, (x - 5) ** 2]
        for other in solutions:
            less = [a < b for a, b in zip(other["values"], one["values"], strict=True)]
            more = [a > b for a, b in zip(other["values"], one["values"], strict=True)]
            assert any(more) or not any(less)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "code"), [("0.4", 1), ("0.5", 0)])
def test_failures_end_no_sweep_and_too_many_are_said(
    program: Program, rate: str, code: int
) -> None:
    with_config(program)
    words = ("hydra/sweeper/sampler=grid", "error=false,true", "x=1,2", "y=0")
    done = sweep(program, SPHERE, *words, f"hydra.sweeper.max_failure_rate={rate}")
    assert done.code == code
    assert states(program, "sphere").count(TrialState.FAILED) == 2
    assert states(program, "sphere").count(TrialState.FINISHED) == 2
    said = "study sphere: 2 of 4 trials failed, and hydra.sweeper.max_failure_rate=0.4"
    assert (said in done.stderr) == bool(code)


@pytest.mark.slow
def test_a_sampler_that_optuna_dropped_is_the_one_that_took_over(program: Program) -> None:
    with_config(program, SPHERE_CONFIG.replace(": tpe", ": motpe"))
    assert sweep(program, SPHERE, "hydra.sweeper.n_trials=1").code == 0
    stored = StudyFiles(program.folder / "studies" / "sphere").config.read_text()
    assert "sampler: tpe_schema" in stored


# --- streaming, pruned, resumed -------------------------------------------------------------------


@pytest.mark.slow
def test_what_it_prints_prunes_and_a_killed_sweep_goes_on_in_its_folder(program: Program) -> None:
    words = [AUTOML, LR, "hydra.sweeper.n_trials=8", "hydra.sweeper.metric=val_loss"]
    words += ["hydra.sweeper.study_name=mine", "hydra.sweeper.pruner=median"]
    (program.folder / "wait").touch()
    killed = program.start_script(TRAINING, "-m", *words)
    study = StudyFiles(program.folder / "studies" / "mine")

    def has_reported() -> bool:
        return study.events.exists() and any(
            trial.n_reports for trial in read_study(study.path).trials.values()
        )

    killed.wait_until(has_reported, "a trial reports")
    killed.kill()
    (program.folder / "wait").unlink()
    done = sweep(program, TRAINING, *words)
    assert done.code == 0, done.stderr
    trials = read_study(study.path).trials
    assert len(trials) == 8
    assert {trial.state for trial in trials.values()} == {TrialState.FINISHED, TrialState.PRUNED}
    (folder,) = (program.folder / "multirun").glob("*/*")
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == sorted(map(str, trials))
    more = program.run("resume", "mine", "n_trials=9")
    assert more.code == 0, more.stderr
    assert (folder / "8").exists()


@pytest.mark.slow
def test_trials_stream_and_ctrl_c_says_how_to_go_on(program: Program) -> None:
    """A trial that never ends holds up no other, as it would in batches."""
    source = TRAINING.replace('Path("wait").exists()', "cfg.lr > 0.09")
    points = "[{+lr:0.1},{+lr:0.01},{+lr:0.01},{+lr:0.01}]"
    words = [AUTOML, "+lr=0.1,0.01", "hydra/sweeper/sampler=random", "hydra.sweeper.n_jobs=2"]
    words += ["hydra.sweeper.metric=val_loss", "hydra.sweeper.study_name=mine"]
    words += ["hydra.sweeper.pruner=none", f'hydra.sweeper.overrides=["study.enqueue={points}"]']
    running = program.start_script(source, "-m", *words)
    study = StudyFiles(program.folder / "studies" / "mine")

    def is_past_the_first() -> bool:
        if not study.events.exists():
            return False
        found = [trial.state for trial in read_study(study.path).trials.values()]
        return found.count(TrialState.FINISHED) >= 3

    running.wait_until(is_past_the_first, "three trials end beside the first")
    assert states(program, "mine")[0] is TrialState.RUNNING
    running.signal(signal.SIGINT)
    done = running.wait()
    assert done.code == 130
    assert "Traceback" not in done.stderr
    assert "python -m automl resume mine" in done.stdout


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_application_that_returns_nothing_is_told_what_to_do(program: Program) -> None:
    source = TRAINING.replace("while Path", "while False and Path")
    done = sweep(program, source, AUTOML, LR, "hydra.sweeper.n_trials=3")
    assert done.code == 1
    assert "name a metric that it prints or logs, hydra.sweeper.metric=val_loss" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["x=3"], "nothing is searched. Give a param several values"),
        (
            ["x=1,2", "++hydra.launcher._target_=hydra_plugins.other.OtherLauncher"],
            "hydra.sweeper.n_jobs=4 limits how many run at once",
        ),
        (["x=1,2", "hydra.sweeper.sampler.nothing=3"], "nothing"),
    ],
)
def test_what_it_does_not_do_is_said_in_one_line(
    program: Program, words: list[str], says: str
) -> None:
    with_config(program, SPHERE_CONFIG.replace("params:", "# params:"))
    done = sweep(program, SPHERE, *words)
    assert done.code == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (program.folder / "studies").exists()


# --- the plugin -----------------------------------------------------------------------------------


def test_hydra_finds_it_and_loads_nothing_with_it(program: Program) -> None:
    source = """
import sys
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
names = [cls.__name__ for cls in Plugins.instance().discover(Sweeper)]
loaded = {"automl", "optuna", "torch", "mlflow", "numpy", "pandas"} & set(sys.modules)
print(sorted(names), sorted(loaded))
"""
    done = program.start_script(source).wait()
    assert (done.stdout, done.stderr) == ("['AutomlSweeper', 'BasicSweeper'] []\n", "")


def test_its_packages_have_no_init_file() -> None:
    """Else no other distribution could add a plugin of Hydra's."""
    assert not list(PLUGIN_PATH.rglob("__init__.py"))
