"""kill -9 in the middle of asking, and many threads that report while the main one asks."""

from __future__ import annotations

import json
import queue
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage

from automl.errors import StorageError
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.samplers.random import IndependentSampler
from automl.search.study import AskedTrial
from tests.search.conftest import Studies, ask, finish, report, run

N_THREADS = 32
N_STEPS = 20

ASKING = """
import json, sys
from pathlib import Path
from tests.search.conftest import Studies, ask, finish, report

study = Studies(Path(sys.argv[1])).open(seed=3)
for trial in study.interrupted():
    finish(study, trial.number)
while True:
    trial = ask(study)
    print(json.dumps([trial.number, dict(trial.params)]), flush=True)
    if trial.number % 3:
        report(study, trial.number, 0, 1.0)
        finish(study, trial.number)
"""


def asked_until_killed(folder: Path, n_lines: int) -> list[AskedTrial]:
    """Start a sweep's asking, kill it after it told of `n_lines` trials; all it told of."""
    with subprocess.Popen(
        [sys.executable, "-c", ASKING, str(folder)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(n_lines)]
        process.kill()
        lines += process.stdout.readlines()
    whole = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [AskedTrial(number, params) for number, params in whole]


def test_kills_lose_no_trial_and_repeat_none(studies: Studies, tmp_path: Path) -> None:
    told: list[AskedTrial] = []
    draw = random.Random(0)
    for _ in range(3):
        told += asked_until_killed(tmp_path, draw.randrange(1, 60))
        study = studies.open(seed=3)
        # The last trial may have been written but not told of.
        assert study.n_asked in (len(told), len(told) + 1)
        for trial in study.interrupted():
            if trial.number == len(told):
                told.append(trial)
            assert told[trial.number] == trial, "taken over with the params it was asked with"
        study.close()
    assert [trial.number for trial in told] == list(range(len(told)))
    (tmp_path / "whole").mkdir()
    whole = run(studies.open(directory=tmp_path / "whole", seed=3), len(told))
    assert told == whole


def test_trials_that_the_storage_has_lost_keep_their_numbers_and_params(studies: Studies) -> None:
    asked = [ask(studies.open(seed=3))]
    begun = {0: {"lr": 0.0025}, 1: {"lr": 0.005}, 3: {"lr": 0.0075}}
    study = studies.reopen(studies._open[0], begun=begun, seed=3)
    assert study.n_restored == 3
    kept = {trial.number: trial.params["lr"] for trial in study.interrupted()}
    assert kept == {0: asked[0].params["lr"], 1: 0.005, 2: kept[2], 3: 0.0075}
    assert ask(study).number == 4
    assert studies.reopen(study, begun=begun, seed=3).n_restored == 0


def test_a_lost_trial_that_no_space_of_the_study_has_is_named(studies: Studies) -> None:
    with pytest.raises(StorageError, match=r"journal\.log is damaged: .*lost trial 0 with odd"):
        studies.open(begun={0: {"odd": 1}})


def test_many_threads_report_while_the_main_thread_asks_and_tells(
    studies: Studies, tmp_path: Path
) -> None:
    study = studies.open(sampler=IndependentSampler(), pruner=SuccessiveHalving())
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def train(trial: AskedTrial) -> None:
        try:
            for step in range(N_STEPS):
                report(study, trial.number, step, trial.number + 1 / (step + 1))
        finally:
            ended.put(trial.number)

    with ThreadPoolExecutor(N_THREADS) as pool:
        jobs = [pool.submit(train, ask(study)) for _ in range(N_THREADS)]
        for _ in range(N_THREADS):
            finish(study, ended.get())
            jobs.append(pool.submit(train, ask(study)))
        for _ in range(N_THREADS):
            finish(study, ended.get())
    for job in jobs:
        job.result()
    stock = optuna.load_study(
        study_name="toy",
        storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal.log"))),
    )
    for trial in stock.trials:
        assert trial.state is optuna.trial.TrialState.COMPLETE
        assert trial.intermediate_values == {
            step: trial.number + 1 / (step + 1) for step in range(N_STEPS)
        }
