"""Programs that log to W&B: what they log goes to their trial, whether W&B is installed or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automl.objectives.program.program_arguments import (
    ProgramInputs,
    check_command_params,
    command_words,
    nested_params,
    program_arguments,
)
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    Params,
    PrunedOutcome,
    ValuesLogged,
    Verdict,
)
from tests.models.conftest import Listener
from tests.objectives.program.conftest import Run

PROGRAM = """
import argparse, time
import wandb

args = argparse.Namespace(lr=9.0, epochs=3)
with wandb.init(project="demo", config=args) as run:
    wandb.watch(None, log="all")
    for epoch in range(wandb.config.epochs):
        wandb.log({"train": {"loss": epoch}, "picture": wandb.Image("a.png"), "good": True})
        run.log({"val_loss": wandb.config["opt"]["lr"] / (epoch + 1), "epoch": epoch})
        time.sleep(%s)
    run.summary["done"] = 1
"""
INSTALLED = """
config, run = {}, None
class Run:
    def __init__(self):
        import json, os
        from wandb.sdk.wandb_summary import Summary
        entries = json.load(open(os.environ["WANDB_SWEEP_PARAM_PATH"]))
        config.update({k: v["value"] for k, v in entries.items()}, mode=os.environ["WANDB_MODE"])
        self.step, self.summary, self.kept = 0, Summary(), []
    def log(self, data, step=None, commit=None):
        self.kept.append(data)
        self.step += 1
"""


def logged(listener: Listener) -> list[tuple[str, float, int]]:
    events = [event for event in listener.events if isinstance(event, ValuesLogged)]
    return [(p.name, p.value, p.step) for event in events for p in event.points]


def test_without_wandb_a_stand_in_has_the_params_and_reports(run: Run) -> None:
    listener = run(PROGRAM % 0, params={"opt.lr": 0.5, "epochs": 2}, wandb=True)
    assert [step for step, _ in listener.reports] == [0, 1]
    assert [metrics["val_loss"] for _, metrics in listener.reports] == [0.5, 0.25]
    assert logged(listener) == [
        ("train.loss", 0.0, 0),
        ("epoch", 0.0, 0),
        ("train.loss", 1.0, 2),
        ("epoch", 1.0, 1),
        ("done", 1.0, 1),
    ]
    assert isinstance(listener.outcome, FinishedOutcome)
    assert listener.outcome.value == 0.25


def test_a_pruned_trial_ends_its_program(run: Run) -> None:
    listener = Listener({1: Verdict.PRUNE})
    run(PROGRAM % 0.3, params={"opt.lr": 0.5, "epochs": 500}, wandb=True, listener=listener)
    assert isinstance(listener.outcome, PrunedOutcome)
    assert len(listener.reports) < 10


def test_the_installed_wandb_runs_offline_and_reports(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "wandb"
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    Path("wandb").mkdir()  # W&B's folder of runs
    (package / "sdk").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from wandb.sdk.wandb_run import Run, config\ndef init(): return Run()\n"
    )
    (package / "sdk" / "__init__.py").write_text("")
    (package / "sdk" / "wandb_run.py").write_text(INSTALLED)
    (package / "sdk" / "wandb_summary.py").write_text(
        "class Summary(dict):\n    def __setitem__(self, key, value): self.update({key: value})\n"
    )
    listener = run(
        "import wandb, json\nrun = wandb.init()\n"
        "run.log({'val_loss': wandb.config['lr']}, step=40)\nrun.log({'loss': 3}, 41)\n"
        "run.summary['best'] = 2\n"
        "json.dump([wandb.config, run.kept], open('kept', 'w'))\n",
        params={"lr": 0.5},
        wandb=True,
    )
    config, kept = json.loads(Path("kept").read_text())
    assert config == {"mode": "offline", "lr": 0.5}
    assert kept == [{"val_loss": 0.5}, {"loss": 3}], "the installed one logs, too"
    assert listener.reports == [(0, {"val_loss": 0.5})]
    assert logged(listener) == [("loss", 3.0, 41), ("best", 2.0, 0)]


def test_what_is_printed_and_logged_is_one_report(run: Run) -> None:
    source = (
        "import wandb, time\nwandb.init()\nfor n in (3, 2):\n    print('val_loss:', n)\n"
        "    time.sleep(0.5)\n    wandb.log({'val_loss': n, 'more': n})\n    time.sleep(0.5)\n"
    )
    listener = run(source, wandb=True)
    assert [metrics["val_loss"] for _, metrics in listener.reports] == [3, 2]


def test_a_sweep_within_the_program_is_refused(run: Run) -> None:
    listener = run("import wandb\nwandb.agent('a/b', function=print)\n", wandb=True)
    assert isinstance(listener.outcome, FailedOutcome)
    assert "the sweep is run by automl" in listener.outcome.cause


def test_json_of_a_program_is_nested_as_wandb_has_it(run: Run) -> None:
    source = "import json, sys\nprint('val_loss:', json.load(open(sys.argv[1]))['opt']['lr'])\n"
    assert run(source, params={"opt.lr": 0.5}, wandb=True).reports == [(0, {"val_loss": 0.5})]


# --- groups of params -----------------------------------------------------------------------------

INPUTS = ProgramInputs(1, 0, "c", "t", 1, "p.json")


def test_a_group_of_params_is_one_word() -> None:
    words = command_words("python train.py {params} --opt={opt}")
    params: Params = {"lr": 0.1, "opt.name": "sgd", "opt.adam.beta": 0.9}
    check_command_params("python train.py {params} --opt={opt}", tuple(params))
    assert program_arguments(words, params, INPUTS) == [
        "python",
        "train.py",
        "--lr=0.1",
        "--opt={'name': 'sgd', 'adam': {'beta': 0.9}}",
    ]


@pytest.mark.parametrize(
    ("params", "nested"),
    [
        ({"a": 1, "b.c": 2, "b.d.e": None}, {"a": 1, "b": {"c": 2, "d": {"e": None}}}),
        ({"b.c": 2, "b": 1}, {"b": 1, "b.c": 2}),
        ({}, {}),
    ],
)
def test_nested_params(params: dict[str, int], nested: dict[str, object]) -> None:
    assert nested_params(params) == nested
