"""Transformers' Trainer in a trial, with a tiny model of random weights."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import automl
from automl.trial import FailedOutcome, FinishedOutcome, InterruptedOutcome, PrunedOutcome, Verdict
from tests.integrations.conftest import CarryOut

with suppress(ModuleNotFoundError):  # then all are skipped, below
    import transformers

N_EPOCHS = 3


@pytest.fixture(autouse=True)
def library() -> None:
    reason = "Transformers is not installed: make recipes does it"
    pytest.importorskip("transformers", reason=reason)
    pytest.importorskip("accelerate", reason=reason)


def trainer(trial: automl.TrialContext, name: str = "eval_loss", **settings: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=12,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        num_labels=2,
    )
    tokens = torch.randint(0, 12, (24, 5), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": row, "labels": row[0] % 2} for row in tokens]
    arguments = {
        "num_train_epochs": N_EPOCHS,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return transformers.Trainer(
        transformers.BertForSequenceClassification(config),
        transformers.TrainingArguments(**arguments | settings),
        train_dataset=rows[:16],
        eval_dataset=rows[16:],
        callbacks=[automl.integrations.transformers.Report(trial, name)],
    )


def trains(trial: automl.TrialContext, **settings: Any) -> float:
    own = trainer(trial, **settings)
    checkpoint = automl.integrations.transformers.last_checkpoint(trial)
    own.train(resume_from_checkpoint=checkpoint)
    return float(own.evaluate()["eval_loss"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a Trainer makes its output_dir there as it begins
    return tmp_path / "trial-00000" / "transformers"


def test_each_evaluation_of_the_training_is_a_report(carry_out: CarryOut, folder: Path) -> None:
    ended = carry_out(trains, metric="eval_loss")
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
    assert [step for step, _ in ended.reports] == list(range(N_EPOCHS)), "not that after it"
    assert [set(metrics) for _, metrics in ended.reports] == [{"eval_loss"}] * N_EPOCHS
    assert {path.name for path in folder.iterdir()} == {f"checkpoint-{n}" for n in (2, 4, 6)}


def with_two_sets(trial: automl.TrialContext, name: str) -> None:
    own = trainer(trial, name)
    own.eval_dataset = {"a": own.eval_dataset, "b": own.eval_dataset[:2]}
    own.train()


def test_of_several_data_sets_one_is_reported(carry_out: CarryOut) -> None:
    ended = carry_out(lambda trial: with_two_sets(trial, "eval_b_loss"), metric="eval_b_loss")
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
    assert [step for step, _ in ended.reports] == list(range(N_EPOCHS))


def test_a_metric_of_none_is_named_with_those_there_are(carry_out: CarryOut) -> None:
    outcome = carry_out(lambda trial: with_two_sets(trial, "eval_loss")).outcome
    assert isinstance(outcome, FailedOutcome)
    assert "no metric 'eval_loss' to report" in outcome.cause
    assert "eval_a_loss" in outcome.cause
    assert "eval_b_loss" in outcome.cause


@pytest.mark.parametrize("optunas", [False, True])
def test_pruned(carry_out: CarryOut, optunas: bool) -> None:
    ended = carry_out(trains, {1: Verdict.PRUNE}, metric="eval_loss", optunas=optunas)
    assert isinstance(ended.outcome, PrunedOutcome), ended.outcome
    assert (ended.outcome.step, len(ended.reports)) == (1, 2)


def test_an_interrupted_trial_writes_its_checkpoint_and_goes_on_there(
    carry_out: CarryOut, folder: Path
) -> None:
    def saves_by_itself_never(trial: automl.TrialContext) -> float:
        return trains(trial, save_strategy="no")

    whole = carry_out(saves_by_itself_never, metric="eval_loss")
    first = carry_out(saves_by_itself_never, {1: Verdict.STOP}, metric="eval_loss")
    assert isinstance(first.outcome, InterruptedOutcome), first.outcome
    assert [path.name for path in folder.iterdir()] == ["checkpoint-4"]
    second = carry_out(saves_by_itself_never, metric="eval_loss")
    assert isinstance(second.outcome, FinishedOutcome), second.outcome
    assert first.reports == whole.reports[:2]
    assert second.reports == whole.reports[2:], "its shuffling goes on, too"


def test_a_checkpoint_that_was_not_finished_is_passed_over(
    carry_out: CarryOut, folder: Path
) -> None:
    carry_out(trains, {1: Verdict.STOP}, metric="eval_loss")
    folder.joinpath("checkpoint-9").mkdir()
    found: list[str | None] = []

    def looks(trial: automl.TrialContext) -> float:
        found.append(automl.integrations.transformers.last_checkpoint(trial))
        return 1.0

    carry_out(looks)
    assert found == [str(folder / "checkpoint-4")]
    assert json.loads(folder.joinpath("checkpoint-4", "trainer_state.json").read_text())
