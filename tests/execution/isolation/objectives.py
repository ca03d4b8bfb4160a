"""What trials do to their process. Each returns the pid, unless it says otherwise."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

import automl
from automl.execution.watched_values import read_watched_values

HERE = __name__
_in_worker = multiprocessing.parent_process() is not None
_pool: list[object] = []
_first: dict[str, object] = {}
sys.path.append("/added/by/the/module")
_child = subprocess.Popen(["sleep", "3604"]) if _in_worker else None
"""Of the module's own, in workers."""


def train(trial: automl.TrialContext) -> float:
    """Does what the param `act` says."""
    globals()[trial.params["act"]](trial)
    return float(os.getpid())


def nothing(trial: automl.TrialContext) -> None:
    """What most do."""


# --- what is put back ---


def change_all(trial: automl.TrialContext) -> None:
    """Every value that can be put back."""
    multiprocessing.set_start_method("spawn")
    os.chdir("/")
    os.environ["AUTOML_TEST_LEFT"] = "1"
    sys.argv = ["train.py"]
    sys.path.insert(0, "/")
    logging.getLogger("tests.left").addHandler(logging.NullHandler())
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    pyplot.figure()


def change_dtype(trial: automl.TrialContext) -> None:
    torch.set_default_dtype(torch.float64)


def change_all_and_fail(trial: automl.TrialContext) -> None:
    change_all(trial)
    raise ValueError("after it")


def look(trial: automl.TrialContext) -> None:
    """Fails where anything differs from what the first trial met that looked."""
    if "/added/by/the/module" not in sys.path:
        raise ValueError("what the module added is gone")
    now = {**read_watched_values()}
    setups = now["logging"][0]
    now["logging"] = setups["root"], "tests.left" in setups
    del now["warnings"]  # libraries that are imported first add theirs, and import hooks
    now["settings of the interpreter"] = now["settings of the interpreter"][:-2]
    differ = [name for name, was in _first.items() if was != now[name]]
    _first.update(now)
    if differ:
        raise ValueError(f"changed: {differ}")


# --- what ends the process ---


def leave_thread(trial: automl.TrialContext) -> None:
    threading.Thread(target=wait_for_ever).start()


def wait_for_ever() -> None:
    threading.Event().wait()


def close_standard_streams(trial: automl.TrialContext) -> None:
    os.close(1)
    sys.stdout.close()


# --- what does not ---


def use_libraries(trial: automl.TrialContext) -> None:
    """What they keep waits for the next use, or was ended."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    list(tqdm(range(2), mininterval=0.001))
    model = torch.nn.Linear(2, 1)
    torch.optim.Adam(model.parameters())
    for start_method in (None, "forkserver"):
        load(start_method)


def load(start_method: str | None) -> None:
    """Not to the end of its data."""
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    loader: torch.utils.data.DataLoader[object] = torch.utils.data.DataLoader(
        data, num_workers=1, persistent_workers=True, multiprocessing_context=start_method
    )
    next(iter(loader))


def use_mlflow(trial: automl.TrialContext) -> None:
    import mlflow

    mlflow.log_metric("val_loss", 1.0, step=0, synchronous=False)
    mlflow.flush_async_logging()


def use_joblib(trial: automl.TrialContext) -> None:
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    Parallel(n_jobs=2)(delayed(abs)(n) for n in range(4))


def load_what_cannot_be_pickled(trial: automl.TrialContext) -> None:
    """As outside of a sweep, where Linux forks (until Python 3.14)."""
    if sys.platform.startswith("linux") and sys.version_info < (3, 14):
        process = multiprocessing.Process(target=lambda: None)
        process.start()
        process.join()


def use_compiler(trial: automl.TrialContext) -> None:
    """As `torch.compile` does on a GPU: its processes wait for more."""
    from torch._inductor.async_compile import AsyncCompile

    assert AsyncCompile.process_pool().submit(abs, -1).result() == 1


def drop_pools(trial: automl.TrialContext) -> None:
    """One in a circle of references, as that of an exception is."""
    held: list[object] = [ThreadPoolExecutor(1)]
    held.append(held)
    pool = held[0]
    assert isinstance(pool, ThreadPoolExecutor)
    pool.submit(nothing, trial).result()


# --- processes ---


def leave_child(trial: automl.TrialContext) -> None:
    _say_pid(subprocess.Popen(["sleep", "3601"]).pid)


def say_child_of_module(trial: automl.TrialContext) -> None:
    assert _child is not None
    _say_pid(_child.pid)


def leave_session(trial: automl.TrialContext) -> None:
    _say_pid(subprocess.Popen(["sleep", "3602"], start_new_session=True).pid)


def hang_with_session(trial: automl.TrialContext) -> None:
    leave_session(trial)
    wait_for_ever()


def die_with_session(trial: automl.TrialContext) -> None:
    """By a hand that lists no descendants before."""
    leave_session(trial)
    os.kill(os.getpid(), signal.SIGKILL)


def leave_orphan(trial: automl.TrialContext) -> None:
    """A daemon: its parent, which has a session of its own, has ended."""
    done = subprocess.run(
        ["sh", "-c", "sleep 3603 >/dev/null 2>&1 & echo $!"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    _say_pid(int(done.stdout))


def leave_fork(trial: automl.TrialContext) -> None:
    process = multiprocessing.get_context("fork").Process(target=wait_for_ever)
    process.start()
    assert process.pid is not None
    _say_pid(process.pid)


def fork_and_return(trial: automl.TrialContext) -> None:
    """Both processes go on."""
    if os.fork() == 0:
        (trial.directory / "forked").touch()


def _say_pid(pid: int) -> None:
    print(pid, flush=True)  # noqa: T201  read from the trial's output


# --- hooks ---


def use_fork_server(trial: automl.TrialContext) -> None:
    process = multiprocessing.get_context("forkserver").Process(target=int)
    process.start()
    process.join()


def leave_to_fork_server(trial: automl.TrialContext) -> None:
    process = multiprocessing.get_context("forkserver").Process(target=wait_for_ever)
    process.start()
    assert process.pid is not None
    _say_pid(process.pid)


def leave_hook(trial: automl.TrialContext) -> None:
    atexit.register(_note, trial.directory, "hook")
    _pool.append(tempfile.TemporaryDirectory(prefix="automl-test-", dir=trial.directory.parent))


def leave_hook_and_thread(trial: automl.TrialContext) -> None:
    leave_hook(trial)
    leave_thread(trial)


def leave_broken_hook(trial: automl.TrialContext) -> None:
    leave_hook(trial)
    atexit.register(_raise)


def leave_endless_hook(trial: automl.TrialContext) -> None:
    atexit.register(wait_for_ever)


def _note(folder: Path, text: str) -> None:
    (folder / "hook.txt").write_text(text)


def _raise() -> None:
    raise ValueError("a hook fails")
