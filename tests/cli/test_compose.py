"""Composing: the config that comes out, and every refusal with key, value and remedy."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest

from automl.config import (
    Config,
    DataKind,
    DataRule,
)
from automl.models.families.mlp.family import MLPFamily
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.tpe import TPE
from automl.trial import Direction
from tests.cli.conftest import Compose, Refuse


def test_the_defaults_are_those_of_the_classes(composed: Compose) -> None:
    config = composed().config
    space, config.space = config.space, {}
    assert config == Config(model=MLPFamily(), sampler=TPE(), pruner=SuccessiveHalving())
    assert set(space) == {"depth", "width", "lr", "batch_size"}


def test_values_and_options(composed: Compose) -> None:
    config = composed(
        "data=digits",
        "sampler=random",
        "pruner=none",
        "study.direction=maximize",
        "study.enqueue=[{depth: 2, lr: 0.1}]",
        "devices.only=[GPU-8f,GPU-9a]",
        "study.timeout_seconds=90",
    ).config
    assert config.data.kind is DataKind.digits
    assert (config.sampler, config.pruner) == (IndependentSampler(), NoPruner())
    assert config.study.direction is Direction.maximize
    assert config.study.enqueue == [{"depth": 2, "lr": 0.1}]
    assert config.devices.only == ["GPU-8f", "GPU-9a"]
    assert config.study.timeout_seconds == 90.0


def test_columns_are_taken_for_what_the_line_says(composed: Compose) -> None:
    words = ["data=csv", "data.path=t.csv", "data.target=y"]
    config = composed(
        *words,
        "data.columns.joined=date",
        "data.columns.capital gain=drop",
        "data.columns.hours-per.week=number",
        "data.columns.a=b: [c]=text",
    ).config
    assert config.data.columns == {
        "joined": "date",
        "capital gain": "drop",
        "hours-per.week": "number",
        "a=b: [c]": "text",
    }
    assert config.data.rules == len(DataRule)


def test_arguments_of_a_sampler(composed: Compose) -> None:
    config = composed("sampler.n_startup_trials=5", "pruner.factor=4").config
    assert config.sampler == TPE(n_startup_trials=5)
    assert config.pruner == SuccessiveHalving(factor=4)


def test_references_are_resolved_for_the_sweep_alone(
    composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOML_TEST_URI", "http://ann:s3cret@localhost:1")
    found = composed("tracking.uri=${oc.env:AUTOML_TEST_URI}")
    assert found.config.tracking.uri == "http://ann:s3cret@localhost:1"
    assert "${oc.env:AUTOML_TEST_URI}" in found.stored_config
    assert "s3cret" not in found.stored_config


def test_composing_leaves_no_trace(composed: Compose, folder: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("hydra").disabled)
    with warnings.catch_warnings(record=True) as caught:
        composed("study.n_trials=3")
    assert list(folder.iterdir()) == []
    assert (root.level, list(root.handlers), logging.getLogger("hydra").disabled) == before
    assert caught == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "study.n_trialz=3",
            "study.n_trialz: there is no such key. Did you mean study.n_trials? "
            "Keys of study: name, n_trials, timeout_seconds",
        ),
        ("++study.n_trialz=3", "Did you mean study.n_trials?"),
        ("n-trials=3", "Write n_trials=3."),
        ("n_trails=3", "Did you mean n_trials=3?"),
        ("timeuot=60", "Did you mean timeout=60?"),
        ("timeout=soon", "timeout=soon: a duration is a number of seconds"),
        ("lr=0.1", "A param of the search space is written space.lr=0.1."),
        ("batch_size=32", "no such key. A param of the search space is written space.batch_size="),
        ("depth=3", "no such key. A param of the search space is written space.depth=3."),
        ("lr=0.1,0.01", "params of the search space (space.lr=0.1,0.01)"),
        ("lr=interval(1e-4,1e-1)", "search space ('space.lr=interval(1e-4,1e-1)')"),
        ("foo.n_trials=3", "foo: there is no such key. Keys: "),
        ("target=y", "data=csv needs"),
        ("data.kind=csv", "data.kind=csv: the option says this: write data=csv, or table=FILE"),
        ("sampler=bayesian", "Write sampler=gp."),
        ("sampler=hyperopt", "Write sampler=tpe."),
        ("sampler=grid_search", "Write sampler=grid."),
        ("pruner=Hyperband", "Write pruner=halving."),
        ("model=xgboost", "Write model=boosting."),
        ("data=wine.csv", "Write table=wine.csv target=COLUMN."),
        ("studdy.n_trials=3", "Did you mean study? Keys: study, space, data"),
        ("+extra=3", "extra: there is no such key"),
        ("samplr=random", "Did you mean sampler?"),
        ("smapler/x=random", "there is no such key"),
        ("sampler=random sampler.n_ei_candidates=3", "it belongs to sampler=tpe"),
        ("sampler.fctor=3", "Keys of sampler: n_startup_trials"),
        (
            "sampler=rnd",
            "sampler=rnd: there is no such option. Did you mean random? "
            "Options of sampler: auto, cmaes, gp, grid, nsga2, nsga3, qmc, random, tpe.",
        ),
        ("execution=cloud", "Options of execution: inline, ray, workers"),
        ("~sampler", "sampler: nothing is chosen"),
        ("~study.seed", "a setting cannot be removed"),
        (
            "study.n_trials=abc",
            "study.n_trials=abc: Value 'abc' of type 'str' could not be converted to Integer. "
            "It takes int | None.",
        ),
        ("study.n_trials=1.5", "could not be converted to Integer"),
        ("study.n_trials=0", "study.n_trials=0: must be at least 1"),
        ("study.direction=min", "expected one of [minimize, maximize]"),
        ("study.dir=null", "study.dir=null: "),
        ("study=3", "study=3: "),
        ("devices.only=GPU-8f,GPU-9a", "a list is written devices.only=[a,b]"),
        ("training.epochs=10,20", "one value for training.epochs"),
        ("training.epochs=range(1,3)", "one value for training.epochs"),
        ("sampler=random,tpe", "one value for sampler"),
        ("study.name=../x", "study.name=../x: a study name is"),
        ("data=csv", "data=csv needs table=FILE"),
        ("objective=python", "objective.target=module:function"),
        ("admission.request=lots", "512MiB"),
        ("ray.max_code=600MiB", "ray.max_code=600MiB: must be above 0 and at most 500MiB"),
        ("study.dir=a(b)", "\"study.dir='a(b)'\""),
        ("study.seed=1 study.name", "study.name: the value is missing: name=…"),
        ("data=digits fly", "fly: settings are written key=value"),
        ("=3", "settings are written key=value"),
        ("study..seed=3", "study..seed is no key"),
        ("tracking.uri=${oc.env:AUTOML_NOWHERE}", "'AUTOML_NOWHERE' not found. Define it"),
        ("tracking.uri=${study.nme}", "'study.nme' not found"),
        ("+data=digits", "Multiple values for data"),
        ("--config-name nope", "there is no such file in conf/"),
        ("--config-dir nope", "--config-dir nope: there is no such folder"),
        ("resume", "resume needs a study: resume NAME"),
        ("sync", "there is no study yet"),
    ],
)
def test_refused(refused: Refuse, words: str, said: str) -> None:
    message = refused(*words.split(" "))
    assert said in message
    assert "Traceback" not in message
    assert "search path" not in message.lower()
    assert "_schema" not in message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hydra.run.dir=/tmp/out", "hydra.run.dir=/tmp/out: has no effect here; give study.dir="),
        ("++hydra.run.dir=out", "hydra.run.dir=out: has no effect here; give study.dir=FOLDER"),
        ("hydra.sweep.subdir=x", "give study.dir=FOLDER"),
        (
            "hydra.output_subdir=null",
            "hydra.output_subdir=null: has no effect here; give study.dir",
        ),
        ("hydra/job_logging=none", "hydra/job_logging=none: has no effect here; a sweep's words"),
        ("hydra/hydra_logging=disabled", "sweep.log"),
        ("hydra.job_logging.root.level=DEBUG", "sweep.log"),
        ("hydra.verbose=true", "hydra.verbose=true: has no effect here; AUTOML_DEBUG=1 shows"),
        ("hydra.verbose=[automl]", "AUTOML_DEBUG=1 shows"),
        ("hydra.job.chdir=true", "cd FOLDER"),
        (
            "+hydra.job.env_set.A=1",
            "hydra.job.env_set.A=1: has no effect here; set it in the shell",
        ),
        ("~hydra.run", "hydra.run: has no effect here; give study.dir=FOLDER"),
        ("hydra.mode=MULTIRUN", "one sweep runs all trials"),
        ("hydra.sweeper.params.a=1", "conf/sampler"),
        ("hydra/sweeper=optuna", "hydra/sweeper=optuna: has no effect here; sampler=NAME"),
        ("hydra/launcher=joblib", "admission.max_concurrent_trials"),
        ("hydra.job.name=mine", "hydra.job.name=mine: has no effect here; leave it out."),
    ],
)
def test_what_hydra_would_do_and_we_do_not_is_refused(
    refused: Refuse, words: str, said: str
) -> None:
    assert said in refused("status", words)


def test_what_hydra_does_here_is_taken(composed: Compose, folder: Path) -> None:
    (folder / "more" / "data").mkdir(parents=True)
    (folder / "more" / "data" / "mine.yaml").write_text("kind: digits\n")
    path = f"hydra.searchpath=[file://{folder / 'more'}]"
    assert composed("data=mine", path).config.data.kind is DataKind.digits
    (folder / "own.yaml").write_text(
        "defaults: [sweep, _self_]\n"
        f"hydra: {{verbose: false, searchpath: ['file://{folder / 'more'}']}}\n"
    )
    found = composed("--config-dir", ".", "--config-name", "own", "data=mine")
    assert found.config.data.kind is DataKind.digits


def test_schemas_are_named_where_a_file_lacks_one(refused: Refuse, folder: Path) -> None:
    (folder / "sampler").mkdir()
    (folder / "sampler" / "mine.yaml").write_text("n_ei_candidates: 3\n")
    (folder / "sampler" / "bare.yaml").write_text("{}\n")
    message = refused("--config-dir", ".", "sampler=mine")
    assert "start it with defaults: [tpe_schema]" in message
    assert "names no schema" in refused("--config-dir", ".", "sampler=bare")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pth: 3\n", "data/mine.yaml: data.pth: there is no such key. Did you mean data.path?"),
        ("n_train: many\n", "data/mine.yaml: data.n_train: Value 'many'"),
        ("kind: [\n", "mine.yaml, line 2: not valid YAML"),
        ("kind: disc\nkind: csv\n", "mine.yaml, line 2: not valid YAML (found duplicate key kind)"),
        ("a\tb: {\n", "not valid YAML"),
        ("- 1\n", "data/mine.yaml: "),
        ("defaults: [nothing]\n", "data/nothing: there is no such file"),
        ("defaults: {a: 1}\n", "defaults must be a list"),
        ("kind: \xff\n", "cannot be read"),
    ],
)
def test_a_bad_file_of_the_users(refused: Refuse, folder: Path, text: str, said: str) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "mine.yaml").write_bytes(text.encode("latin-1"))
    assert said in refused("--config-dir", str(folder), "data=mine")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("study: {n_trials: 3}\n", "defaults: [sweep, _self_]"),
        ("defaults: [sweep, {override samplr: tpe}]\n", "No match in the defaults list. Groups: "),
        ("defaults: [sweep, {nogroup: x}]\n", "nogroup: there is no such group"),
        ("defaults: [sweep, _self_]\nstudy: {n_trialz: 3}\n", "own.yaml: study.n_trialz: there is"),
    ],
)
def test_a_bad_config_of_the_users(refused: Refuse, folder: Path, text: str, said: str) -> None:
    (folder / "own.yaml").write_text(text)
    assert said in refused("--config-dir", ".", "--config-name", "own")


def test_a_config_of_the_users_starts_from_ours(composed: Compose, folder: Path) -> None:
    (folder / "own.yaml").write_text(
        "defaults: [sweep, {override pruner: none}, {override data: mine}, _self_]\n"
        "study: {n_trials: 3}\n"
    )
    (folder / "data").mkdir()
    (folder / "data" / "mine.yaml").write_text("kind: digits\n")
    config = composed("--config-dir", ".", "--config-name", "own", "study.seed=4").config
    assert (config.study.n_trials, config.study.seed) == (3, 4)
    assert (config.pruner, config.data.kind) == (NoPruner(), DataKind.digits)


def test_a_file_that_ours_would_hide_is_refused(refused: Refuse, folder: Path) -> None:
    (folder / "sampler").mkdir()
    (folder / "sampler" / "tpe.yaml").write_text("defaults: [tpe_schema]\n")
    message = refused("--config-dir", ".")
    assert "sampler/tpe.yaml has the name of a file of automl's own" in message
    assert "rename it" in message


def test_two_folders_one_after_the_other(composed: Compose, refused: Refuse, folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name / "data").mkdir(parents=True)
        (folder / name / "data" / f"{name}.yaml").write_text("kind: digits\n")
    assert composed("--config-dir", "a", "data=a").config.data.kind is DataKind.digits
    assert "Options of data: b, csv, digits, disc" in refused("--config-dir", "b", "data=a")
