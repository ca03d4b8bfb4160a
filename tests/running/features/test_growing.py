"""The ensemble while a sweep goes on: what is asked when, and what is shown."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from automl.api.study_handle import compose_for_call
from automl.models.model_file import EnsembleFileJob, EnsembleQueryResult
from automl.models.predictor import load
from automl.record.study_files import StudyFiles
from automl.running.features.ensemble import (
    MAX_TIME_FRACTION,
    MIN_PAUSE_SECONDS,
    GrowingEnsemble,
    ensemble_row,
    rebuild_wait_seconds,
)
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.trial_standings import RankedTrial
from automl.terminal.view import EnsembleRow, FamilyRow
from automl.trial import CheckpointKind, TrialState
from tests.fork_server import fork_server_with
from tests.models.test_ensemble import model_file

RANKING = [
    RankedTrial(number, value, {"family": family}, TrialState.FINISHED)
    for number, value, family in (
        (4, 0.2, "boosting"),
        (0, 0.3, "mlp"),
        (2, 0.4, "boosting"),
        (1, 0.5, "linear"),
    )
]
GROWN = EnsembleQueryResult({0: 0.5, 4: 0.3, 2: 0.2}, {"loss": 0.19, "error": 0.05}, 1.0)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    fork_server_with()


def test_each_family_has_its_best_and_its_share_the_best_first() -> None:
    row = ensemble_row(GROWN, RANKING, "val_error", "family")
    assert (row.metric, row.value, row.n_models) == ("error", 0.05, 3)
    assert row.families == (
        FamilyRow("boosting", 0.2, 0.5),
        FamilyRow("mlp", 0.3, 0.5),
        FamilyRow("linear", 0.5, 0.0),
    )


def test_one_that_is_not_among_the_best_any_more_has_no_family() -> None:
    row = ensemble_row(GROWN, RANKING[:1], "train_loss", "family")
    assert row.metric == "loss"
    assert row.families == (FamilyRow("boosting", 0.2, 0.3),)


def test_what_takes_long_is_seldom_done() -> None:
    assert rebuild_wait_seconds(0.0) == MIN_PAUSE_SECONDS
    assert rebuild_wait_seconds(10.0) == 10.0 / MAX_TIME_FRACTION


@pytest.fixture
def prepared() -> PreparedStudy:
    config = compose_for_call(
        "sweep", ["study.name=a", "model=auto", "data=disc", "data.n_train=50"]
    ).config
    return prepare_study(config)


@pytest.fixture
def ranking(prepared: PreparedStudy, tmp_path: Path) -> list[RankedTrial]:
    """Return the ranking of two trials whose models exist."""
    assert prepared.dataset is not None
    for number in (0, 1):
        made = Path(model_file(tmp_path, number, prepared.dataset, 3.0))
        best = StudyFiles(tmp_path).checkpoint(number, CheckpointKind.BEST)
        best.parent.mkdir(parents=True)
        made.rename(best)
    return [RankedTrial(n, 0.5 + n, {"family": "mlp"}, TrialState.FINISHED) for n in (0, 1)]


def grown(growing: GrowingEnsemble, ranking: list[RankedTrial], now_seconds: float) -> EnsembleRow:
    growing.look(ranking, now_seconds)
    process = growing._process
    assert process is not None
    while (row := growing.row(ranking, "val_loss")) is None:
        wait([process._pipe])
        growing.look(ranking, now_seconds)
    return row


def asked_last(prepared: PreparedStudy, folder: Path) -> EnsembleFileJob:
    assert prepared.dataset is not None
    files = StudyFiles(folder)
    models = {n: str(files.checkpoint(n, CheckpointKind.BEST)) for n in (0, 1)}
    return EnsembleFileJob(str(files.ensemble), models, prepared.dataset, "a")


def test_it_grows_and_is_written_in_the_end(
    prepared: PreparedStudy, ranking: list[RankedTrial], tmp_path: Path
) -> None:
    with closing(GrowingEnsemble(prepared, tmp_path)) as growing:
        growing.look(ranking[:1], 0.0)
        assert growing._process is None, "one is none"
        row = grown(growing, ranking, 1.0)
        assert [family.name for family in row.families] == ["mlp"]
        growing.look(ranking, 1000.0)
        assert growing._process is not None
        assert not growing._process.busy, "nothing is new"
        made = growing.write(asked_last(prepared, tmp_path))
        assert made.scores["loss"] == pytest.approx(row.value)
    assert load(StudyFiles(tmp_path).ensemble).params


@pytest.mark.slow
def test_where_its_process_was_killed_another_writes_it(
    prepared: PreparedStudy, ranking: list[RankedTrial], tmp_path: Path
) -> None:
    with closing(GrowingEnsemble(prepared, tmp_path)) as growing:
        row = grown(growing, ranking, 1.0)
        assert growing._process is not None
        growing._process._child.kill()
        growing._process._child.join()
        made = growing.write(asked_last(prepared, tmp_path))
        assert made.scores["loss"] == pytest.approx(row.value)
        growing.look(ranking[::-1], 1000.0)
        assert growing._process is None
        assert growing.row(ranking, "val_loss") == row, "what was known is still shown"


def test_a_study_that_wants_no_ensemble_grows_none(prepared: PreparedStudy, tmp_path: Path) -> None:
    study = replace(prepared.config.study, finish="none")
    unwanted = replace(prepared, config=replace(prepared.config, study=study))
    with closing(GrowingEnsemble(unwanted, tmp_path)) as growing:
        assert not growing.can_grow
    with closing(GrowingEnsemble(prepared, tmp_path)) as growing:
        assert growing.can_grow
