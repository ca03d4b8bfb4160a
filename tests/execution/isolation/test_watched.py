"""Each watched value is changed the way that trials do, and is what it was afterwards."""

from __future__ import annotations

import builtins
import decimal
import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch

from automl.execution.watched_values import (
    WATCHED_VALUES,
    put_back_watched_values,
    read_watched_values,
)

mpl.use("agg")


def _set_several_flags() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark


def _replace_variables() -> None:
    os.environ["AUTOML_TEST_NEW"] = "1"
    del os.environ["AUTOML_TEST_GONE"]
    os.environ["AUTOML_TEST_OTHER"] = "after"


def _log_to_a_file() -> None:
    """As `basicConfig` in a training function does, and one's own logger, at each call."""
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("tests.train").addHandler(logging.NullHandler())
    logging.getLogger("tests.before").handlers.clear()
    logging.getLogger("tests.before").setLevel(logging.CRITICAL)
    logging.getLogger("tests.before").disabled = True
    logging.disable(logging.INFO)


def _plot() -> None:
    from matplotlib import pyplot

    pyplot.figure()


def _set_precisions() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]


def _set_signals() -> None:
    signal.signal(signal.SIGUSR2, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1000)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])


def _lower_limits() -> None:
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE):
        resource.setrlimit(limit, (200, resource.getrlimit(limit)[1]))
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])


def _set_up_the_interpreter() -> None:
    os.umask(0o077 if read_watched_values()["settings of the interpreter"][0] != 0o077 else 0)
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    sys.setrecursionlimit(900)
    gc.set_threshold(1)
    decimal.getcontext().prec = 3
    del builtins.print
    sys.path_hooks.clear()


def _leave_time_zone() -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    del os.environ["TZ"]


CHANGES: dict[str, Callable[[], object]] = {
    "working directory": lambda: os.chdir("/"),
    "environment": _replace_variables,
    "sys.argv": lambda: setattr(sys, "argv", ["train.py", "--lr", "1"]),
    "sys.path": lambda: sys.path.insert(0, "/"),
    "start method of multiprocessing": lambda: multiprocessing.set_start_method(
        "spawn", force=True
    ),
    "logging": _log_to_a_file,
    "figures of matplotlib": _plot,
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "threads of torch": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "grad mode": lambda: torch.set_grad_enabled(False),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "denormal numbers": lambda: torch.set_flush_denormal(True),
    "errors of numpy": lambda: np.seterr(all="raise"),
    "time zone": _leave_time_zone,
    "signals": _set_signals,
    "limits of the process": _lower_limits,
    "settings of the interpreter": _set_up_the_interpreter,
    "warnings": lambda: warnings.simplefilter("error"),
    "deterministic flags": _set_several_flags,
    "float32 precision": _set_precisions,
}


@pytest.fixture(autouse=True)
def _before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test breaks here would be met by others."""
    monkeypatch.setenv("AUTOML_TEST_GONE", "before")
    monkeypatch.setenv("AUTOML_TEST_OTHER", "before")
    logging.getLogger("tests.before").addHandler(logging.NullHandler())
    before = read_watched_values()
    yield
    assert put_back_watched_values(before) == []


def test_each_value_of_the_list_has_a_test() -> None:
    names = {watched.name for watched in WATCHED_VALUES}
    assert {*CHANGES, "inference mode"} == names


@pytest.mark.parametrize("name", CHANGES)
def test_a_value_is_put_back(name: str) -> None:
    before = read_watched_values()
    CHANGES[name]()
    assert read_watched_values()[name] != before[name]
    assert put_back_watched_values(before) == []
    assert read_watched_values()[name] == before[name]


def test_inference_mode_ends_with_its_process() -> None:
    before = read_watched_values()
    with torch.inference_mode():
        [failed] = put_back_watched_values(before)
    assert failed.startswith("inference mode (RuntimeError: ")


@pytest.mark.parametrize("change", [lambda: sys.path.clear(), lambda: setattr(sys, "path", ["/"])])
def test_a_list_is_the_same_object_with_the_same_content(change: Callable[[], None]) -> None:
    """Others hold it, too."""
    held, content, before = sys.path, list(sys.path), read_watched_values()
    change()
    assert put_back_watched_values(before) == []
    assert sys.path is held
    assert sys.path == content


def test_a_variable_that_is_put_back_is_seen_by_programs() -> None:
    before = read_watched_values()
    _replace_variables()
    put_back_watched_values(before)
    with os.popen("echo $AUTOML_TEST_NEW-$AUTOML_TEST_GONE-$AUTOML_TEST_OTHER") as program:
        assert program.read() == "-before-before\n"


def test_what_torch_set_anew_and_by_its_newer_settings_is_put_back_together() -> None:
    before = read_watched_values()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="precision"):
        torch.get_float32_matmul_precision()
    assert put_back_watched_values(before) == []
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_folder_that_was_removed_is_left(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    before = read_watched_values()
    os.chdir(gone)
    gone.rmdir()
    assert put_back_watched_values(before) == []
    assert Path.cwd() == Path(before["working directory"])


def test_what_cannot_be_put_back_is_named_and_the_rest_is_put_back(tmp_path: Path) -> None:
    here = Path.cwd()
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    before = read_watched_values()
    os.chdir(here)
    gone.rmdir()
    torch.set_grad_enabled(False)
    failed = put_back_watched_values(before)
    assert len(failed) == 1
    assert failed[0].startswith("working directory (FileNotFoundError: ")
    assert torch.is_grad_enabled()


def test_loggers_of_what_a_trial_imports_first_stay_as_they_were_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next trial does not import it again."""
    monkeypatch.syspath_prepend(tmp_path)
    name = "automl_test_imported_late"
    (tmp_path / f"{name}.py").write_text(
        "import logging\n"
        "logging.getLogger(__name__ + '.part').addHandler(logging.NullHandler())\n"
        "def train():\n"
        "    logging.getLogger(__name__).addHandler(logging.NullHandler())\n"
    )
    first = read_watched_values()
    module = __import__(name)
    put_back_watched_values(first)
    assert len(logging.getLogger(f"{name}.part").handlers) == 1
    second = read_watched_values()
    module.train()
    put_back_watched_values(second)
    assert logging.getLogger(name).handlers == []
    assert len(logging.getLogger(f"{name}.part").handlers) == 1
