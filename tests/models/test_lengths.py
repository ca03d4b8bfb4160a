"""How long trials train where nobody says it: networks by steps, others by reports."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.config import Config, DataConfig, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.errors import ConfigError
from automl.models.families.auto.family import BATCH_SIZES, DEFAULT, AutoFamily, batch_sizes
from automl.models.families.boosting.family import BoostingFamily
from automl.models.families.mlp.family import MLPFamily
from automl.models.networks.network_family import (
    LEAST_PATIENCE,
    MOST_EPOCHS,
    PATIENCE_STEPS,
    TrainingParams,
)
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.objectives.training_session import open_session
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.trial import Params
from tests.models.conftest import HOST, Listener, make_plan, make_spec

UNSAID = TrainingConfig(epochs=None)


def epochs_of(*words: str) -> int | None:
    return compose_command(parse_command_line(words)).config.training.epochs


def test_only_several_families_have_lengths_of_their_own() -> None:
    assert epochs_of() == epochs_of("model=mlp") == epochs_of("model=boosting") == 20
    assert epochs_of("model=auto") is None
    assert epochs_of("model=auto", "space=auto") is None
    assert epochs_of("training.epochs=3", "model=auto") == 3
    assert epochs_of("model=auto", "training.epochs=20") == 20
    assert epochs_of("model=mlp", "training.epochs=null") is None


def test_a_length_that_is_said_is_it_for_all_families() -> None:
    for family in (MLPFamily(), BoostingFamily(), AutoFamily()):
        assert family.with_length(TrainingConfig(epochs=7)) == TrainingConfig(epochs=7)
        assert family.n_reports(TrainingConfig(epochs=7)) == 7


def test_networks_train_by_steps_and_others_by_reports() -> None:
    own = MLPFamily().with_length(UNSAID)
    assert (own.epochs, own.patience_steps) == (MOST_EPOCHS, PATIENCE_STEPS)
    assert (
        MLPFamily().with_length(TrainingConfig(epochs=None, patience_steps=7)).patience_steps == 7
    )
    assert BoostingFamily().with_length(UNSAID) == TrainingConfig(epochs=40, patience_epochs=5)
    assert BoostingFamily().with_length(replace(UNSAID, patience_epochs=7)).patience_epochs == 7
    assert BoostingFamily().with_length(UNSAID, 20_000).epochs == 40
    assert BoostingFamily().with_length(UNSAID, 20_001).epochs == 160, "small steps go on improving"
    assert BoostingFamily().with_length(TrainingConfig(epochs=7), 20_001).epochs == 7
    plan = make_plan(family=AutoFamily(), training=UNSAID)
    assert plan.n_reports == MOST_EPOCHS
    kinds: list[Params] = [{"family": kind} for kind in DEFAULT]
    assert [plan.n_reports_of(params) for params in kinds] == [1, 40, 20, MOST_EPOCHS, 1]
    assert replace(plan, n_rows=50_000).n_reports_of({"family": "boosting"}) == 160
    assert TrainingPlan.from_config(Config(model=MLPFamily(), training=UNSAID)).training == own


@pytest.mark.parametrize(
    ("n_rows", "batch_size", "epochs"),
    [(240, 32, 125), (3900, 64, 17), (39_000, 128, LEAST_PATIENCE), (10, 32, 1000)],
)
def test_patience_is_as_many_epochs_as_have_the_steps(
    n_rows: int, batch_size: int, epochs: int
) -> None:
    params = TrainingParams(batch_size=batch_size)
    assert params.limit_epochs(1000, n_rows) == epochs
    assert params.limit_epochs(None, n_rows) is None
    given: Params = {"batch_size": batch_size, "patience_epochs": 3}
    assert MLPFamily().patience_epochs(given, own_steps(1000), n_rows) == 3
    del given["patience_epochs"]  # type: ignore[attr-defined]
    assert MLPFamily().patience_epochs(given, own_steps(1000), n_rows) == epochs


def own_steps(steps: int) -> TrainingConfig:
    return TrainingConfig(epochs=None, patience_steps=steps)


@pytest.mark.parametrize("depth", [0, 1], ids=["call by call", "as a pack"])
@pytest.mark.parametrize("folds", [False, True], ids=["hold-out", "folds"])
def test_a_trial_that_gets_no_better_ends_after_so_many_steps(
    disc: Dataset, tmp_path: Path, depth: int, folds: bool
) -> None:
    """At a learning rate at which no weight changes, the first epoch stays the best."""
    dataset = load_dataset(DataConfig(folds=5, n_train=160, n_validation=80)) if folds else disc
    training = TrainingConfig(epochs=50, patience_steps=30)
    plan = replace(make_plan(training=training), n_models=dataset.n_models)
    listener = Listener()
    params: Params = {"depth": depth, "width": 8, "lr": 1e-30, "batch_size": 50}
    open_session(SessionSetup(plan, dataset)).run(make_spec(tmp_path, params), HOST, listener)
    n_epoch_steps = -(-dataset.n_train // 50)
    assert len(listener.reports) == 1 + max(LEAST_PATIENCE, -(-30 // n_epoch_steps))


def prepared(*words: str, n_rows: int = 4000) -> PreparedStudy:
    config = compose_command(parse_command_line(["model=auto", *words])).config
    config.data = DataConfig(n_train=n_rows)
    return prepare_study(config)


def rungs(of: PreparedStudy, kind: str) -> Sequence[int]:
    return [step + 1 for step in of.pruners[kind].rungs(-1, 199)]


def test_each_family_is_pruned_by_its_own_length() -> None:
    of = prepared()
    assert (rungs(of, "boosting"), rungs(of, "trees")) == ([2, 5, 14], [3, 7])
    assert rungs(of, "linear") == []
    assert rungs(of, "mlp") == [3, 8, 23, 67]
    few = prepared(n_rows=200)
    assert rungs(few, "mlp") == [23, 67], "no earlier than after some 125 steps"
    sent = pickle.loads(pickle.dumps(few.rungs))
    assert [step + 1 for step in sent(-1, 199)] == [2, 3, 5, 7, 14, 23, 67], "where any may stop"
    said = prepared("training.epochs=20")
    assert rungs(said, "mlp") == rungs(said, "boosting") == [3, 7]
    assert rungs(prepared("pruner.max_steps=9"), "mlp") == [3]


def test_batches_are_such_that_an_epoch_has_some_steps() -> None:
    assert batch_sizes(None) == batch_sizes(2560) == list(BATCH_SIZES)
    assert batch_sizes(2559) == [32, 64, 128]
    assert batch_sizes(639) == batch_sizes(5) == [32]
    assert prepared(n_rows=700).space["mlp_batch_size"].domain.ends == (32, 64)
    assert prepared("space.mlp_batch_size=256", n_rows=700).space.has(
        {"family": "linear", "linear_l2": 1.0}
    )


def test_the_words_of_a_wrong_patience_name_the_key() -> None:
    with pytest.raises(ConfigError, match=r"training\.patience_steps=0: must be at least 1"):
        TrainingConfig(patience_steps=0)
    with pytest.raises(ConfigError, match=r"training\.epochs=0: must be at least 1"):
        TrainingConfig(epochs=0)
