"""Objectives of whole-program tests, found by `tests.end_to_end.objectives:NAME`."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import automl

N_EPOCHS = 12


def study_folder(trial: automl.TrialContext) -> Path:
    """Where a test leaves word for its objective, whatever process that runs in."""
    return trial.directory.parent.parent


def counts(trial: automl.TrialContext) -> None:
    """Twelve epochs, or as many as its param says, each with a checkpoint; writes down every epoch
    that it really trains, and when, in which process."""
    state = trial.restore()
    n_epochs = int(trial.params.get("epochs", N_EPOCHS))
    for epoch in range(0 if state is None else state["epoch"] + 1, n_epochs):
        began = time.time()
        hashlib.pbkdf2_hmac("sha256", b"work", b"", 30_000)  # about 10 ms
        with (trial.directory / "trained").open("a") as trained:
            trained.write(f"{epoch}\n")
        with (trial.directory / "when").open("a") as when:
            when.write(f"{os.getpid()} {began} {time.time()}\n")
        losses = {"train_loss": 1 / (epoch + 1), "val_loss": trial.number + 1 / (epoch + 1)}
        trial.report(epoch, losses, checkpoint=partial(dict, epoch=epoch))


def speaks(trial: automl.TrialContext) -> None:
    """Leaves every file that a trial can: two checkpoints, and what it printed."""
    sys.stdout.write("a word\n")
    trial.report(0, {"val_loss": 0.5}, checkpoint=partial(dict, epoch=0))


def says_where_it_may_write(trial: automl.TrialContext) -> float:
    """Leaves the name of its folder for what is temporary."""
    (trial.directory / "temporary").write_text(tempfile.gettempdir())
    return 1.0


def reports_until_told(trial: automl.TrialContext) -> None:
    """Report step after step, until a word is left."""
    for step in itertools.count():
        trial.report(step, {"val_loss": 1.0})
        if (study_folder(trial) / "go on").exists():
            return
        time.sleep(0.01)


def waits_half_way(trial: automl.TrialContext) -> None:
    """Four epochs, each with a checkpoint; the third only once a word is left. Writes down every
    epoch that it really trains."""
    state = trial.restore()
    for epoch in range(0 if state is None else state["epoch"] + 1, 4):
        while epoch == 2 and not (study_folder(trial) / "go on").exists():
            time.sleep(0.01)
        with (trial.directory / "trained").open("a") as trained:
            trained.write(f"{epoch}\n")
        trial.report(epoch, {"val_loss": 1.0}, checkpoint=partial(dict, epoch=epoch))


def never_returns(trial: automl.TrialContext) -> None:
    """Reports once, and then nothing more; writes down that it hangs."""
    if trial.restore() is None:
        trial.report(0, {"val_loss": 0.5}, checkpoint=partial(dict, epoch=0))
    with (trial.directory / "hangs").open("a") as hangs:
        hangs.write("again\n")
    threading.Event().wait()


def falls_off(trial: automl.TrialContext) -> float:
    """Trains until a word is left which GPU was lost: there it fails, elsewhere it ends when it is
    told to."""
    uuid, folder = os.environ["CUDA_VISIBLE_DEVICES"], study_folder(trial)
    (folder / f"on-{uuid}-{trial.number}").touch()
    word = folder / "lost"
    while not word.exists():
        time.sleep(0.01)
    if word.read_text() == uuid:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    while not (folder / "enough").exists():
        time.sleep(0.01)
    return 1.0


def ends_when_told(trial: automl.TrialContext) -> None:
    """Reports until a word is left that it is enough."""
    folder = study_folder(trial)
    for step in itertools.count():
        trial.report(step, {"val_loss": 1.0})
        if (folder / "enough").exists():
            return
        time.sleep(0.1)


def takes_its_time(trial: automl.TrialContext) -> float:
    """Writes down where and when it ran."""
    begin = time.time()
    time.sleep(0.6)
    span = f"{os.environ['CUDA_VISIBLE_DEVICES']} {begin} {time.time()}\n"
    with (study_folder(trial) / "spans").open("a") as spans:
        spans.write(span)
    return 1.0


def ends_oddly(trial: automl.TrialContext) -> None:
    """Its process dies or memory runs out, as its param says, but the second time it hangs."""
    with (trial.directory / "starts").open("a+") as starts:
        starts.write("again\n")
        starts.seek(0)
        n_starts = len(starts.readlines())
    if n_starts == 2:
        (trial.directory / "hangs").touch()
        threading.Event().wait()
    if trial.params["how"] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    raise MemoryError("no room")


def runs_out_of_memory(trial: automl.TrialContext) -> float:
    """Of the host, so often as its param says, each time a step further on."""
    state = trial.restore()
    start = 0 if state is None else state["step"] + 1
    for step in range(start, 4):
        trial.report(step, {"val_loss": 1.0}, checkpoint=partial(dict, step=step))
        if step < int(trial.params["times"]):
            raise MemoryError("no room")
    return 1.0


def always_runs_out(trial: automl.TrialContext) -> None:
    """Of the host's memory."""
    raise MemoryError("no room")


def ends_as_told(trial: automl.TrialContext) -> object:
    """Ends in the way that its param names."""
    match trial.params["how"]:
        case "raises":
            raise ValueError(f"the rows\nof trial {trial.number} are odd")
        case "exits":
            sys.exit("cannot go on")
        case "returns_nan":
            return float("nan")
        case "returns_inf":
            return float("inf")
        case "returns_text":
            return "1.5"
        case "returns_nothing":
            return None
        case "reports_nan":
            trial.report(0, {"val_loss": float("nan")})
            return None
        case _:
            trial.report(0, {"val_loss": 0.25})
            return None


def always_raises(trial: automl.TrialContext) -> None:
    raise ValueError("the table is gone")


def raises_differently(trial: automl.TrialContext) -> None:
    raise ValueError(f"the table of trial {trial.number} is gone")


def looks_up_another_param(trial: automl.TrialContext) -> float:
    return float(trial.params["learning_rate"])


def reports_another_metric(trial: automl.TrialContext) -> None:
    trial.report(0, {"loss": 0.5, "acc": 0.9})


def kills_the_server(trial: automl.TrialContext) -> None:
    """In its third trial it ends the process group that `server.pid` beside `studies/` names."""
    if trial.number == 2:
        pid = int((study_folder(trial).parent.parent / "server.pid").read_text())
        os.killpg(pid, signal.SIGKILL)
    for epoch in range(3):
        losses = {"train_loss": 0.5, "val_loss": 0.5 / (epoch + 1)}
        trial.report(epoch, losses, checkpoint=partial(dict, epoch=epoch))


@automl.objective(params=["lr"], metrics=["val_loss", "acc"])
def declared(trial: automl.TrialContext) -> float:
    return float(trial.params["lr"])


def reports_thrice(trial: automl.TrialContext) -> None:
    for epoch in range(3):
        losses = {"train_loss": 1 / (epoch + 1), "val_loss": trial.number + 1 / (epoch + 1)}
        trial.report(epoch, losses)


LEFT_EARLY, N_LEFT = 0.2, 1
"""The best value of all, of a trial that gives up by itself."""


def gives_up_in_front(trial: automl.TrialContext) -> None:
    """Trials report 0.5, 0.2, 0.4, 0.3, …; the second, the best by far, then ends as pruned."""
    value = LEFT_EARLY if trial.number == N_LEFT else {0: 0.5, 2: 0.4}.get(trial.number, 0.3)
    trial.report(0, {"val_loss": value}, checkpoint=partial(dict, epoch=0))
    if trial.number == N_LEFT:
        raise automl.TrialPruned


def gives_up_in_front_and_returns(trial: automl.TrialContext) -> float:
    """The same; what it returns has nothing to do with what it reports."""
    gives_up_in_front(trial)
    return 10.0 - trial.number


def stands_still(trial: automl.TrialContext) -> None:
    """Nine reports of one value, larger from trial to trial."""
    for step in range(9):
        trial.report(step, {"val_loss": 1.0 + trial.number})


def trains_a_network(trial: automl.TrialContext) -> None:
    """A user's own loop, slow enough that trials side by side are seen; one that `meets` another
    ends after that has begun, however slow the machine is."""
    import torch

    network = torch.nn.Linear(64, int(trial.params["width"])).to(trial.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=trial.params["lr"])
    x = torch.ones(32, 64, device=trial.device)
    for epoch in range(4):
        for _ in range(4):
            loss = network(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if not trial.surveying:
            threading.Event().wait(0.25)
            if trial.params.get("meets") and epoch == 3:
                _meet(trial)
        trial.report(epoch, {"val_loss": loss.item()})


def _meet(trial: automl.TrialContext) -> None:
    """Wait until two trials have come here. Raises TimeoutError."""
    (study_folder(trial) / f"came-{trial.number}").touch()
    deadline = time.monotonic() + 60
    while len(list(study_folder(trial).glob("came-*"))) < 2:
        if time.monotonic() > deadline:
            raise TimeoutError("no other trial has come")
        time.sleep(0.01)


def learns_of_refit(trial: automl.TrialContext) -> None:
    """Its state is what it is told."""
    told = {"refit": trial.refit, "devices": len(trial.devices)}
    trial.report(0, {"val_loss": 0.5}, checkpoint=lambda: told)


def fails_soon(trial: automl.TrialContext) -> None:
    raise ValueError("no luck")


def refits_at_the_second_try(trial: automl.TrialContext) -> None:
    if trial.refit and trial.number == 0:
        raise ValueError("no luck")
    trial.report(0, {"val_loss": 0.5}, checkpoint=lambda: {"again": trial.refit})


def takes_a_moment(lr: float, wd: float = 0.0) -> float:
    """A tenth of a second, and a value that depends on its params alone."""
    time.sleep(0.1)
    return (lr - 0.6) ** 2 + wd


def lasts_ten_minutes(trial: automl.TrialContext) -> None:
    """Ten minutes of reports with checkpoints; or, of every fourth trial, a step that takes it all.
    Ends at once where a word is left. Has a child of its own, which would live for long."""
    _start_child(trial)
    state, word = trial.restore(), study_folder(trial) / "go on"
    for step in range(0 if state is None else state["step"] + 1, 2400):
        trial.report(step, {"val_loss": 1.0}, checkpoint=partial(dict, step=step))
        n_waits = 2400 if trial.number % 4 == 3 and trial.params["hangs"] else 1
        for _ in range(n_waits):
            if word.exists():
                return
            time.sleep(0.25)


def _start_child(trial: automl.TrialContext) -> subprocess.Popen[bytes]:
    """Start what would live for long: with a session, and the open files, of its own or not."""
    own_session, own_files = trial.number % 2 == 0, trial.number % 4 < 2
    return subprocess.Popen(["sleep", "1800"], start_new_session=own_session, close_fds=own_files)


ACKNOWLEDGED = "acknowledged"


def acknowledges(trial: automl.TrialContext, *, dies: bool = False) -> None:
    """Twelve epochs, each with a checkpoint and a value that nobody could compute again. Writes
    down each epoch that it trains and its value, and tells a pipe beside `studies/` what `report`
    has taken."""
    child = _start_child(trial)
    state = trial.restore()
    told = os.open(study_folder(trial).parent.parent / ACKNOWLEDGED, os.O_WRONLY)
    for epoch in range(0 if state is None else state["epoch"] + 1, N_EPOCHS):
        time.sleep(0.05)
        value = random.SystemRandom().random()
        with (trial.directory / "trained").open("a") as trained:
            trained.write(f"{epoch} {value!r}\n")
        dies_now = dies and epoch == trial.number % N_EPOCHS
        get_state = partial(_die_once_logged, trial, value) if dies_now else partial(dict)
        trial.report(epoch, {"val_loss": value}, checkpoint=partial(get_state, epoch=epoch))
        os.write(told, f"{os.getpid()} {trial.number} {epoch} {value!r}\n".encode())
    os.close(told)
    child.kill()
    child.wait()


def dies_in_a_report(trial: automl.TrialContext) -> None:
    """As `acknowledges`, but its process dies once between a value's way and its checkpoint."""
    acknowledges(trial, dies=not (trial.directory / "died").exists())


def _die_once_logged(trial: automl.TrialContext, value: float, epoch: int) -> dict[str, int]:
    log = study_folder(trial) / "events.log"
    while repr(value) not in log.read_text():
        time.sleep(0.01)
    (trial.directory / "died").touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return {"epoch": epoch}  # never


def trains_on_its_state(trial: automl.TrialContext) -> None:
    """Four epochs, each of which goes on from the numbers of the last; the third of trial 1 only
    once a word is left."""
    state = trial.restore() or {"epoch": -1, "numbers": [0.0] * 100}
    numbers = list(state["numbers"])
    for epoch in range(state["epoch"] + 1, 4):
        if trial.number == 1 and epoch == 2 and not (study_folder(trial) / "go on").exists():
            (study_folder(trial) / "half-way").touch()
            threading.Event().wait()
        numbers = [trial.params["rate"] * number + n for n, number in enumerate(numbers)]
        now = {"epoch": epoch, "numbers": numbers}
        trial.report(epoch, {"val_loss": sum(numbers)}, checkpoint=partial(dict, now))


def interrupts(trial: automl.TrialContext) -> None:
    """The first trial ends; the second one presses Ctrl-C, and goes on until it is told to stop."""
    for step in itertools.count():
        trial.report(step, {"val_loss": 0.5}, checkpoint=partial(dict, step=step))
        if trial.number == 0:
            return
        if step == 0:
            os.kill(os.getpid(), signal.SIGINT)
