"""Real programs carried out as trials: what they are given, what they tell, and their files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from automl.errors import StorageError
from automl.objectives.program.command_session import open_session
from automl.objectives.program.program_flags import CommandSetup
from automl.trial import (
    Direction,
    FinishedOutcome,
    MemoryPeakMeasured,
    ObjectiveSession,
    TrialEvent,
    Verdict,
)
from tests.flips import one_bit_flipped
from tests.models.conftest import Listener, make_spec
from tests.objectives.program.conftest import Run
from tests.places import ON_HOST, placed


def folder_of(tmp_path: Path) -> Path:
    return tmp_path / "studies" / "trial-00000"


# --- what it is given and tells -------------------------------------------------------------------

GIVEN = """
import json, os, sys
names = [n for n in os.environ if n.startswith("AUTOML_")] + [
    "CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED", "OMP_NUM_THREADS"]
print("val_loss: 1")
json.dump({"fds": os.listdir("/proc/self/fd"),
           "argv": sys.argv[1:], "cwd": os.getcwd(), "env": {n: os.environ[n] for n in names},
           "stdin": sys.stdin.read(), "json": json.load(open(os.environ["AUTOML_JSON"])),
           "terminal": sys.stdout.isatty(),
           "trial_dir": os.path.isdir(os.environ["AUTOML_TRIAL_DIR"])},
          open("given", "w"))
"""


def test_a_program_is_given_its_params_and_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run(GIVEN, arguments="", params={"lr": 0.0, "width": 8})
    given = json.loads(Path("given").read_text())
    assert given["argv"] == ["--lr=0.0", "--width=8"]
    assert sorted(given["fds"]) == ["0", "1", "2", "3"], "3 is the one that looks"
    assert given["cwd"] == str(tmp_path / "project")
    assert (given["stdin"], given["terminal"], given["trial_dir"]) == ("", False, True)
    assert given["json"] == {"lr": 0.0, "width": 8}
    env = given["env"]
    assert (env["AUTOML_LR"], env["AUTOML_TRIAL"], env["AUTOML_N_DEVICES"]) == ("0.0", "0", "1")
    assert env["AUTOML_CHECKPOINT_DIR"] == str(folder_of(tmp_path))
    assert env["AUTOML_TRIAL_DIR"] == str(folder_of(tmp_path) / "files")
    assert (env["CUDA_VISIBLE_DEVICES"], env["PYTHONUNBUFFERED"]) == ("", "1")
    assert env["OMP_NUM_THREADS"] == "1"


def test_it_sees_the_gpus_of_its_placement_alone(run: Run) -> None:
    run(GIVEN, placement=placed("GPU-a", 5))
    assert json.loads(Path("given").read_text())["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-a"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_it_prints_becomes_reports_and_the_best_its_value(
    stream: str, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = run(
        f"import sys\nout = sys.{stream}\n"
        "for e, v in enumerate([3.0, 1.0, 2.0]):\n"
        "    print(f'epoch {e}: loss {v}, val loss {v}', file=out)\n"
        "out.buffer.write(b'\\xff\\x00 acc: 0.5')"
    )
    assert [step for step, _ in listener.reports] == [0, 1, 2, 3]
    assert listener.reports[1] == (1, {"loss": 1.0, "val_loss": 1.0})
    assert listener.reports[3] == (3, {"acc": 0.5})
    assert isinstance(listener.outcome, FinishedOutcome)
    assert listener.outcome.value == 1.0
    said = capfd.readouterr().out
    assert said.startswith("$ ")
    assert "epoch 2: loss 2.0" in said


def test_all_that_was_printed_is_read(run: Run) -> None:
    """More than is read at once, by one who has ended by then."""
    listener = run(
        "import fcntl, sys\nfcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)\n"
        "print(*range(120_000), 'epoch 7 val_loss: 1', sep='\\n')"
    )
    assert listener.reports == [(7, {"val_loss": 1.0})]


def test_a_report_is_told_while_the_program_runs(run: Run, tmp_path: Path) -> None:
    """It waits for a file that is made when its report has come."""
    answer = tmp_path / "answer"

    class Answering(Listener):
        def __call__(self, event: TrialEvent) -> Verdict:
            verdict = super().__call__(event)
            if self.reports:
                answer.touch()
            return verdict

    listener = run(
        "import os, time\nprint('val_loss: 1')\n"
        f"while not os.path.exists({str(answer)!r}): time.sleep(0.01)",
        listener=Answering(),
    )
    assert isinstance(listener.outcome, FinishedOutcome)


def test_a_pattern_says_what_is_a_metric(run: Run) -> None:
    listener = run("print('loss: 3\\nAverage 0.25')", pattern=r"Average (?P<val_loss>\S+)")
    assert listener.reports == [(0, {"val_loss": 0.25})]


def test_one_that_tells_nothing_for_long_is_spoken_of(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run("print('val_loss: 1')")
    assert caplog.text == ""
    run("print('val_loss: 1')", silent_seconds=0.0)
    assert "execution.silence_timeout_seconds=0 has such trials fail" in caplog.text


def test_its_main_memory_is_told(run: Run) -> None:
    listener = run("x = b'1' * 200_000_000\nprint('val_loss: 1')")
    *_, peak = (event for event in listener.events if isinstance(event, MemoryPeakMeasured))
    assert 200e6 < peak.peak_bytes < 400e6


@pytest.mark.slow
def test_it_is_told_however_many_helpers_end_meanwhile(run: Run) -> None:
    """What its own helpers hold is seen only while they run, and each end wakes who looks."""
    source = """
import os, subprocess, sys, time
held = "import time; a = b'x' * 200_000_000; open('held', 'w'); time.sleep(100)"
subprocess.Popen([sys.executable, "-c", held])
while not os.path.exists("held"):
    time.sleep(0.01)
print("val_loss: 1")
ends = time.monotonic() + 2.5
while time.monotonic() < ends or time.process_time() < 0.4:  # a busy machine looks later
    if os.fork() == 0:
        os.fork()  # an orphan, which its keeper inherits
        os._exit(0)
    os.wait()
"""
    *_, peak = (event for event in run(source).events if isinstance(event, MemoryPeakMeasured))
    assert peak.peak_bytes > 200e6


def test_of_a_gpus_memory_the_driver_tells(run: Run) -> None:
    listener = run("print('val_loss: 1')", placement=placed("GPU-a", 5))
    assert not any(isinstance(event, MemoryPeakMeasured) for event in listener.events)


# --- files ----------------------------------------------------------------------------------------


def test_a_file_that_trials_overwrite_is_named(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    source = (
        "import os\nopen('model.pt', 'w')\nopen(os.environ['AUTOML_TRIAL_DIR'] + '/own.pt', 'w')\n"
        "open(f\"out-{os.environ['AUTOML_TRIAL']}.txt\", 'w')\nprint('val_loss: 1')"
    )
    run(source, number=0)
    assert caplog.text == ""
    time.sleep(0.1)  # files are stamped by a clock that is behind
    run(source, number=1)
    assert "model.pt was written by more than one trial" in caplog.text
    assert "own.pt" not in caplog.text
    assert "out-" not in caplog.text


# --- several processes, and no torch --------------------------------------------------------------

RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
both = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(both)
if dist.get_rank() == 0: print("epoch 0 val_loss:", both.item())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("name", ["params.json.part", "best.json.part"])
def test_files_that_cannot_be_written_are_no_failure_of_the_trial(
    run: Run, tmp_path: Path, name: str
) -> None:
    (tmp_path / "studies" / "trial-00000" / name).mkdir(parents=True)
    with pytest.raises(StorageError, match="the trial's files could not be written"):
        run("print('epoch 0 val_loss 0.5', flush=True)")


def test_a_flipped_bit_in_the_best_report_of_before_is_harmless_or_named(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = run("print('epoch 0 val_loss 0.5')").outcome
    assert isinstance(outcome, FinishedOutcome)
    path, n_damaged = tmp_path / "studies/trial-00000/best.json", 0
    for content in one_bit_flipped(path.read_bytes(), 8):
        path.write_bytes(content)
        caplog.clear()
        outcome = run("print('epoch 1 val_loss 0.7')").outcome
        assert isinstance(outcome, FinishedOutcome)
        is_named = f"{path} cannot be read" in caplog.text
        assert outcome.value == (0.7 if is_named else 0.5)
        n_damaged += is_named
    assert n_damaged


@pytest.mark.slow
def test_torchrun_starts_its_ranks(tmp_path: Path, sessions: list[ObjectiveSession]) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    torchrun = Path(sys.executable).with_name("torchrun")
    command = f"{torchrun} --nproc_per_node=2 {tmp_path}/ranks.py {{json}}"
    setup = CommandSetup(command, None, "val_loss", Direction.minimize, 20.0)
    sessions.append(session := open_session(setup))
    listener = Listener()
    session.run(make_spec(tmp_path / "studies", {}), ON_HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome)
    assert listener.reports == [(0, {"val_loss": 3.0})]


def test_the_side_of_a_worker_loads_no_torch() -> None:
    code = "import sys, automl.objectives.program.command_session; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
