"""Events to runs, exact after kills, lost answers and lost ends of the log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Run
from mlflow.exceptions import MlflowException

from automl.config import KeepCheckpoints
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.mlflow_runs import MlflowRuns
from automl.tracking.deliver.study_delivery import EventLogDelivery
from automl.tracking.mlflow_loading import set_delivery_environment
from automl.tracking.mlflow_store import NotDeliveredError
from automl.tracking.tracking_uri import TrackingUri
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import check_exact, deliver, delivery
from tests.tracking.scenes import (
    NAME,
    begin,
    finish,
    interrupt,
    report,
    sweep_ended,
    sweep_started,
    trial,
    write,
)


class AnswerIsLost(MlflowClient):
    """A client whose server does what it is asked, and whose answer to a create is lost."""

    n_lost = 0

    def create_run(self, *args: object, **kwargs: object) -> Run:
        run = super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        if self.n_lost < 2:
            self.n_lost += 1
            raise MlflowException("API request failed with timeout exception")
        return run


def test_a_create_whose_answer_is_lost_is_not_repeated(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0))
    client = AnswerIsLost(shown.client.tracking_uri)
    with delivery(study, client=client) as delivering:
        delivering.read()
        for _ in range(2):
            with pytest.raises(NotDeliveredError, match="timeout"):
                delivering.deliver()
        delivering.deliver()
    assert client.n_lost == 2
    assert sorted(run.info.run_name for run in shown.runs()) == [NAME, "trial-00000"]
    assert shown.run("trial-00000").data.metrics["value"] == 0.25
    assert "minimizes" in shown.run(NAME).data.tags["mlflow.note.content"]


def test_a_new_trials_create_whose_answer_is_lost_is_looked_for(study: Path, shown: Shown) -> None:
    """A run of a trial that begins now cannot be there; after that create it may be."""
    client = AnswerIsLost(shown.client.tracking_uri)
    write(study, sweep_started())
    with delivery(study, client=client) as delivering:
        write(study, begin(0), report(0, 0))
        delivering.read()
        for _ in range(2):
            with pytest.raises(NotDeliveredError, match="timeout"):
                delivering.deliver()
        delivering.deliver()
    assert sorted(run.info.run_name for run in shown.runs()) == [NAME, "trial-00000"]


class KilledError(BaseException):
    """Stands for the end of the process at that point."""


class DiesAfterCreate(MlflowClient):
    """A client whose process is killed when the run is made and nobody has noted it."""

    def create_run(self, *args: object, **kwargs: object) -> Run:
        super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        raise KilledError


def test_a_run_that_nobody_noted_is_found_again(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0), *trial(1))
    for _ in range(3):  # once for the study's own run, once for each trial
        with pytest.raises(KilledError):
            deliver(study, DiesAfterCreate(shown.client.tracking_uri))
    deliver(study)
    names = sorted(run.info.run_name for run in shown.runs())
    assert names == [NAME, "trial-00000", "trial-00001"]
    assert shown.run("trial-00001").data.metrics["value"] == 1.25


class FailsOverLoss(MlflowClient):
    """A client whose store fails by itself over one metric, `n` times, or over all it is given."""

    def __init__(self, uri: str, n: int, *, over_all: bool = False) -> None:
        super().__init__(uri)
        self.n_left, self._over_all = n, over_all

    def log_batch(
        self, run_id: str, metrics: Sequence[Metric] = (), *args: Any, **kwargs: Any
    ) -> Any:
        if self.n_left and (self._over_all or any(metric.key == "val_loss" for metric in metrics)):
            self.n_left -= 1
            raise MlflowException("the disk has a bad day")  # an internal error
        return super().log_batch(run_id, metrics, *args, **kwargs)


@pytest.mark.parametrize("n_failures", [1, 2, 3, 4])
def test_a_value_that_is_taken_in_the_end_is_not_given_up(
    study: Path, shown: Shown, n_failures: int
) -> None:
    write(study, sweep_started(), begin(0), report(0, 0), finish(0))
    client = FailsOverLoss(shown.client.tracking_uri, n_failures)
    assert deliver(study, client) == []
    assert client.n_left == 0
    assert shown.run("trial-00000").data.metrics["val_loss"] == 0.0


def test_a_store_that_fails_over_everything_has_refused_nothing(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0))
    refusals: list[str] = []
    client = FailsOverLoss(shown.client.tracking_uri, 1000, over_all=True)
    with delivery(study, client=client, refusals=refusals) as delivering:
        delivering.read()
        with pytest.raises(NotDeliveredError, match="bad day"):
            delivering.deliver()
        client.n_left = 0
        delivering.deliver()
    assert refusals == []
    assert shown.history("trial-00000", "val_loss")


class Doubles(MlflowClient):
    """A client whose creates arrive twice, and whose first search for doubles fails."""

    n_failures = 0

    def create_run(self, *args: object, **kwargs: object) -> Run:
        super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        return super().create_run(*args, **kwargs)  # type: ignore[arg-type]

    def search_runs(self, *args: Any, **kwargs: Any) -> Any:
        if "RUNNING" in args[1] and self.n_failures == 0:
            self.n_failures += 1
            raise MlflowException("API request failed with timeout exception")
        return super().search_runs(*args, **kwargs)


def test_doubles_are_looked_for_until_the_server_answers(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0), begin(1), interrupt(1), begin(2))
    client = Doubles(shown.client.tracking_uri)
    server = TrackingUri("http://host:5000", "tracking.uri")
    confirmed = DeliveryConfirmations.open(study / "events.log", wait_seconds=0.0)
    runs = MlflowRuns(client, server, print)
    delivering = EventLogDelivery(study / "events.log", confirmed, runs, KeepCheckpoints.all)
    delivering.read()
    with pytest.raises(NotDeliveredError):
        delivering.deliver()
    assert delivering.offset == 0, "nothing is confirmed: a new process would look again"
    delivering.deliver()
    confirmed.close()
    assert delivering.offset > 0
    names = sorted(run.info.run_name for run in shown.runs())
    assert names == [NAME, "trial-00000", "trial-00001", "trial-00002"]
    assert shown.run("trial-00002").data.params["depth"] == "2", "the one that is written to"


class AnswerIsLate(MlflowClient):
    """A client whose server makes the run only after the client gave up and tried again."""

    late: tuple[object, ...] | None = None

    def create_run(self, *args: object, **kwargs: object) -> Run:
        if kwargs.get("run_name") == "trial-00000" and self.late is None:
            self.late = args
            raise MlflowException("API request failed with timeout exception")
        run = super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        if kwargs.get("run_name") == "trial-00000":
            super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        return run


def test_a_double_that_a_late_server_made_is_deleted(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0))
    with delivery(study, client=AnswerIsLate(shown.client.tracking_uri)) as delivering:
        delivering.read()
        with pytest.raises(NotDeliveredError):
            delivering.deliver()
        delivering.deliver()
    assert sorted(run.info.run_name for run in shown.runs()) == [NAME, "trial-00000"]
    assert shown.run("trial-00000").info.status == "FINISHED"


class TakesNoneOfOne(MlflowClient):
    """A client whose server takes nothing for one trial's run."""

    def create_run(self, *args: Any, **kwargs: Any) -> Run:
        if kwargs["run_name"] == "trial-00001":
            raise MlflowException("API request failed with timeout exception")
        return super().create_run(*args, **kwargs)


def test_a_round_that_fails_leaves_less_if_some_was_taken(study: Path, shown: Shown) -> None:
    """The delivering process goes by that: it tries again soon, and the sweep waits for it."""
    write(study, sweep_started(), *trial(0), *trial(1), *trial(2))
    with delivery(study, client=TakesNoneOfOne(shown.client.tracking_uri)) as delivering:
        delivering.read()
        left = [delivering.n_left]
        for _ in range(2):
            with pytest.raises(NotDeliveredError, match="timeout"):
                delivering.deliver()
            left.append(delivering.n_left)
    assert left == [4, 2, 2]


KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from automl.tracking.mlflow_loading import load_lean
load_lean("automl.tracking.deliver.study_delivery")
from tests.tracking.deliveries import deliver

study, rng = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
server, longest_seconds = sys.argv[3] or None, float(sys.argv[4])
n_kills = 0
while True:
    pid = os.fork()
    if pid == 0:
        deliver(study, server=server)
        os._exit(0)
    if n_kills < 8:
        time.sleep(rng.uniform(0.0, longest_seconds))  # any moment of its work
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if status == 0:
        break
    assert os.WIFSIGNALED(status), "it has said why"
    n_kills += 1
print(n_kills)
"""


def killed_often(study: Path, longest_seconds: float, server: str = "") -> int:
    """Deliver, by a process that is killed again and again within that time; how often it was."""
    words = [str(study), "1", server, str(longest_seconds)]
    set_delivery_environment(environment := dict(os.environ))
    done = subprocess.run(
        [sys.executable, "-c", KILLS, *words],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


@pytest.mark.slow
def test_kill_9_at_any_moment_neither_loses_nor_doubles(study: Path, shown: Shown) -> None:
    n_trials = 40
    events = [event for number in range(n_trials) for event in trial(number, 4)]
    write(study, sweep_started(), *events, sweep_ended(n_trials))
    assert killed_often(study, 0.25) >= 4
    check_exact(shown, n_trials, 4)


def test_a_log_that_has_lost_its_end_makes_no_second_run(study: Path, shown: Shown) -> None:
    """Not even of trials that the study has lost too, and begins under the same numbers."""
    log, numbers = study / "events.log", (1, 2)
    write(study, sweep_started(), *trial(0))
    n_bytes = log.stat().st_size
    write(study, *trial(1, 9), *trial(2, 9))
    deliver(study)
    os.truncate(log, n_bytes)
    write(study, sweep_started(n="2"), *trial(2, 40), *trial(1, 40))  # longer than what was lost
    with delivery(study, fresh_from=n_bytes) as delivering:
        delivering.read()
        delivering.deliver()
    names = [f"trial-{number:05d}" for number in (0, *numbers)]
    assert sorted(run.info.run_name for run in shown.runs()) == [NAME, *names]
    for number in numbers:
        steps = [step for step, _, _ in shown.history(names[number], "val_loss")]
        assert steps == list(range(40))
