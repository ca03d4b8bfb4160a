"""The delivering process: started, followed, killed, refused, drained."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from automl.config import KeepCheckpoints, TrackingConfig
from automl.errors import ConfigError, StudyInUseError
from automl.record.event_log import EventLog
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.delivery import (
    SILENT_SECONDS,
    DeliverySupervisor,
    deliver_study,
    spawn_deliverer,
)
from automl.tracking.tracking_uri import resolve_uri
from automl.trial import CheckpointKind
from tests.processes import is_running
from tests.tracking.conftest import Shown
from tests.tracking.scenes import (
    NAME,
    begin,
    finish,
    free_port,
    report,
    sweep_ended,
    sweep_started,
    trial,
    wait_for,
    write,
    write_checkpoint,
)

READY_SECONDS = 90.0


def delivering_pid(study: Path) -> int:
    """The process that delivers, as it says itself."""
    try:
        header = (study / "events.delivered").read_text().splitlines()[0]
    except (FileNotFoundError, IndexError):
        return 0
    return int(json.loads(header)["pid"])


def test_a_sweep_is_shown_while_it_runs_and_whole_at_its_end(study: Path, shown: Shown) -> None:
    with DeliverySupervisor.start(
        study, TrackingConfig(checkpoints=KeepCheckpoints.best)
    ) as delivery:
        delivery.wait_ready(READY_SECONDS)
        with EventLog.open(study / "events.log") as log:
            for event in (sweep_started(), begin(0), report(0, 0)):
                log.append(event)
            wait_for(lambda: delivery.lag() == 0, "the report is delivered")
            assert shown.run("trial-00000").info.status == "RUNNING"
            assert shown.run("trial-00000").data.metrics["val_loss"] == 0.0
            for kind in CheckpointKind:
                log.append(write_checkpoint(study, 0, kind))
            log.append(finish(0))
            log.append(sweep_ended(1))
        assert delivery.drain(READY_SECONDS)
        assert (delivery.lag(), delivery.trouble()) == (0, None)
        assert delivery.n_delivered() == 7, "what it delivered before it was drained, too"
    assert not is_running(delivering_pid(study))
    assert shown.run(NAME).info.status == "FINISHED"
    assert shown.artifacts("trial-00000") == {"best.pt": b"best of 0"}
    assert (study / "delivery.log").read_text() == ""


def test_a_store_that_failed_for_long_is_tried_once_more_at_the_end(study: Path) -> None:
    with DeliverySupervisor.start(study, TrackingConfig()) as delivery:
        delivery.wait_ready(READY_SECONDS)
        write(study, sweep_started(), *trial(0))
        wait_for(lambda: delivery.lag() == 0, "the first trial is delivered")
        write(study, *trial(1), sweep_ended(2))
        with delivery._changed:
            delivery._set_trouble("refused")
            delivery._trouble_since -= 3600.0
        assert delivery.drain(READY_SECONDS)


@pytest.mark.parametrize("file", ["mlflow.db", "elsewhere.db"])
def test_a_new_store_for_a_study_that_has_runs_is_spoken_of(
    study: Path, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    """As where a relative address is given again in another folder."""
    noted = DeliveryConfirmations.open(study / "events.log", wait_seconds=0.0)
    noted.note_study("5b7c", "3", "parent")
    noted.close()
    with DeliverySupervisor.start(study, TrackingConfig(uri=f"sqlite:///{file}")):
        is_said = f"there is no {Path.cwd() / file}; it is made" in caplog.text
    assert is_said == (file == "elsewhere.db")


@pytest.mark.slow
def test_a_killed_process_is_replaced_and_ctrl_c_does_not_reach_it(
    study: Path, shown: Shown
) -> None:
    with DeliverySupervisor.start(study, TrackingConfig()) as delivery:
        delivery.wait_ready(READY_SECONDS)
        write(study, sweep_started(), *trial(0), begin(1))
        pid = delivering_pid(study)
        assert os.getsid(pid) == pid != os.getsid(0)
        assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
        wait_for(lambda: delivery.lag() == 0, "the first trial is delivered")
        os.kill(pid, signal.SIGKILL)
        write(study, report(1, 0), finish(1))
        wait_for(lambda: delivering_pid(study) not in (0, pid), "another process delivers", 90.0)
        assert delivery.drain(READY_SECONDS)
    assert Counter(run.info.run_name for run in shown.runs()) == {
        NAME: 1,
        "trial-00000": 1,
        "trial-00001": 1,
    }
    assert shown.run("trial-00001").info.status == "FINISHED"


def test_a_process_that_is_killed_before_its_store_is_open_is_replaced(
    study: Path, shown: Shown
) -> None:
    warm = spawn_deliverer(Path.cwd(), resolve_uri(TrackingConfig()))
    warm.kill()
    warm.wait()
    with DeliverySupervisor.start(study, TrackingConfig(), warm) as delivery:
        delivery.wait_ready(READY_SECONDS)
        write(study, sweep_started(), *trial(0), sweep_ended(1))
        assert delivery.drain(READY_SECONDS)
    assert len(shown.runs()) == 2


def test_a_process_ends_with_its_parent_even_while_it_loads_mlflow(tmp_path: Path) -> None:
    (tmp_path / "mlflow.py").write_text(
        "import threading\nopen('loads', 'w').close()\nthreading.Event().wait()"
    )
    process = subprocess.Popen(
        # -X utf8 is the default: tests have this program forked from one that has MLflow, else
        [sys.executable, "-P", "-X", "utf8", "-m", "automl.tracking.deliver.process"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ["PYTHONPATH"])),
        },
        stdin=subprocess.PIPE,
    )
    try:
        wait_for((tmp_path / "loads").exists, "MLflow is loaded")
        assert process.stdin is not None
        process.stdin.close()  # as where the parent is gone
        assert process.wait(READY_SECONDS) == 1
    finally:
        process.kill()


def test_a_process_that_ends_by_itself_is_not_started_again(study: Path) -> None:
    """It would end so again: the user waits for nothing."""
    ends = subprocess.Popen(["false"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with DeliverySupervisor.start(study, TrackingConfig(), ends) as delivery:
        with pytest.raises(ConfigError, match=r"the delivering process died \(exit 1\)"):
            delivery.wait_ready(READY_SECONDS)
        assert delivering_pid(study) == 0


PARENT = """
import sys
from pathlib import Path
from automl.config import TrackingConfig
from automl.tracking.deliver.delivery import DeliverySupervisor
delivery = DeliverySupervisor.start(Path(sys.argv[1]), TrackingConfig())
delivery.wait_ready(90)
assert "mlflow" not in sys.modules
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_the_process_ends_with_its_parent(study: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, study], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        pid = delivering_pid(study)
        assert is_running(pid)
        parent.kill()
    wait_for(lambda: not is_running(pid), "the orphan ends")


def test_a_dead_server_is_refused_at_the_start(study: Path) -> None:
    config = TrackingConfig(uri=f"http://ann:s3cret@127.0.0.1:{free_port()}")
    with DeliverySupervisor.start(study, config) as delivery, pytest.raises(ConfigError) as caught:
        delivery.wait_ready(READY_SECONDS)
    message = str(caught.value)
    assert "refused" in message
    assert message.startswith("tracking.uri=http://ann:***@")
    assert "s3cret" not in message + (study / "delivery.log").read_text()


def test_a_server_that_does_not_answer_is_waited_for_aloud(
    study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it listens, and says nothing
        config = TrackingConfig(uri=f"http://ann:s3cret@127.0.0.1:{silent.getsockname()[1]}")
        with DeliverySupervisor.start(study, config) as delivery, pytest.raises(ConfigError):
            delivery.wait_ready(SILENT_SECONDS + 0.1)
    assert "waiting for its answer, for 3 s at most" in caplog.text
    assert "s3cret" not in caplog.text


def test_an_unknown_store_is_refused_without_a_process(study: Path) -> None:
    with pytest.raises(ConfigError, match="no store of the kind"):
        DeliverySupervisor.start(study, TrackingConfig(uri="htp://x"))
    assert list(study.iterdir()) == []


def test_sync_delivers_what_is_left_and_says_so(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0), sweep_ended(1))
    said: list[str] = []
    assert deliver_study(study, TrackingConfig(), said.append) == 0
    assert said[0] == f"delivering study {NAME} to MLflow"
    assert said[-1] == f"MLflow has all of study {NAME}: delivered events: 7"
    assert len(shown.runs()) == 2


@pytest.mark.slow
def test_sync_of_a_study_that_is_being_delivered_is_refused(study: Path) -> None:
    write(study, sweep_started())
    confirmed = DeliveryConfirmations.open(study / "events.log", wait_seconds=0.0)
    try:
        with pytest.raises(StudyInUseError, match=str(os.getpid())):
            deliver_study(study, TrackingConfig(), print)
    finally:
        confirmed.close()


def test_sync_of_no_study_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"study\.name=nobody"):
        deliver_study(folder / "studies" / "nobody", TrackingConfig(), print)
