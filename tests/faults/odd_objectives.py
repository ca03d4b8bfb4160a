"""Objectives that misbehave in every way that is known here, found by name in `KINDS`.

`train` does what the param `n` says: an even number is one kind of misbehaviour, the odd number
after it a probe (`process_probe.py`). No kind may change what the probe after it finds.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import decimal
import enum
import fractions
import gc
import itertools
import locale
import logging
import math
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch

import automl
from tests.faults.process_probe import METRIC, probe

TARGET = f"{__name__}:train"
TIMEOUT_SECONDS = 3.0

Act = Callable[[automl.TrialContext], object]


def train(trial: automl.TrialContext) -> object:
    """Misbehave in the way that the param `n` names, or probe the process."""
    number = int(trial.params["n"])
    return probe(trial) if number % 2 else [*KINDS.values()][number // 2].act(trial)


# --- the kinds ------------------------------------------------------------------------------------


class Kind:
    """One way to misbehave: what it does, how its trial ends, and parts of the cause."""

    def __init__(self, act: Act, end: str, *causes: str) -> None:
        self.act, self.end, self.causes = act, end, causes


KINDS: dict[str, Kind] = {}
FINISHED, FAILED = "FinishedOutcome", "FailedOutcome"


def returns(name: str, make: Callable[[], object], *causes: str, end: str = FAILED) -> None:
    KINDS[f"returns {name}"] = Kind(lambda trial: make(), end, *causes)


def reports(name: str, *calls: tuple[Any, ...], cause: str = "", end: str = FAILED) -> None:
    def act(trial: automl.TrialContext) -> object:
        for call in calls:
            trial.report(*(part() if callable(part) else part for part in call))
        return None

    KINDS[f"reports {name}"] = Kind(act, end, cause)


def does(name: str, act: Act, end: str = FINISHED, *causes: str) -> None:
    """Add a kind that returns a number, unless the act itself does not return."""

    def then_return(trial: automl.TrialContext) -> object:
        act(trial)
        return 1.0

    KINDS[name] = Kind(then_return, end, *causes)


def raises(name: str, make: Callable[[], BaseException], *causes: str, end: str = FAILED) -> None:
    def act(trial: automl.TrialContext) -> NoReturn:
        raise make()

    KINDS[f"raises {name}"] = Kind(act, end, *causes)


# Values.


class BrokenFloat:
    def __float__(self) -> float:
        raise RuntimeError("no float today")


class ExitingFloat:
    def __float__(self) -> float:
        raise SystemExit(3)


class BrokenRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr today")


class ExitingRepr:
    def __repr__(self) -> str:
        sys.exit(4)


class ExitingItem:
    def item(self) -> float:
        raise KeyboardInterrupt


class EndlessFloat(float):
    def __float__(self) -> float:
        return EndlessFloat(1.0)


class NotEqual(float):
    __hash__ = float.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("incomparable")


class Color(enum.Enum):
    RED = 1.0


def _recursive() -> dict[str, Any]:
    held: dict[str, Any] = {METRIC: 1.0}
    held["self"] = held
    return held


RULE = "return a finite number"
returns("nothing", lambda: None, "nothing returned and nothing reported")
returns("NaN", lambda: math.nan, "returned nan")
returns("infinity", lambda: math.inf, "returned inf")
returns("minus infinity", lambda: -math.inf, "returned -inf")
returns("a text", lambda: "1.5", "'1.5' (str)", RULE)
returns("an empty text", lambda: "", "(str)", RULE)
returns("a long text", lambda: "x" * 10_000_000, "(str)", RULE)
returns("bytes", lambda: b"\x00\xff", "(bytes)", RULE)
returns("True", lambda: True, "True (bool)", RULE)
returns("a complex number", lambda: 1 + 2j, "(complex)", RULE)
returns("a list", lambda: [1.0], "(list)", RULE)
returns("a tuple", lambda: (1.0, 2.0), "(tuple)", RULE)
returns("a set", lambda: {1.0}, "(set)", RULE)
returns("10**400", lambda: 10**400, "(int)", RULE)
returns("1e400", lambda: float("1e400"), "returned inf", RULE)
returns("a decimal", lambda: decimal.Decimal("0.5"), end=FINISHED)
returns("a fraction", lambda: fractions.Fraction(1, 3), end=FINISHED)
returns("a decimal's NaN", lambda: decimal.Decimal("sNaN"), "(Decimal)")
returns("minus zero", lambda: -0.0, end=FINISHED)
returns("a denormal number", lambda: 5e-324, end=FINISHED)
returns("the largest number", lambda: sys.float_info.max, end=FINISHED)
returns("a numpy number", lambda: np.float16(0.5), end=FINISHED)
returns("an array of one", lambda: np.ones((1, 1)), end=FINISHED)
returns("an array of two", lambda: np.ones(2), "(ndarray)", RULE)
returns("an array of objects", lambda: np.array([None]), "(ndarray)", RULE)
returns("a date", lambda: np.datetime64("2026-01-01"), "(datetime64)", RULE)
returns("a tensor", lambda: torch.ones(1, requires_grad=True), end=FINISHED)
returns("a tensor of two", lambda: torch.ones(2), "(Tensor)", RULE)
returns("a tensor without content", lambda: torch.ones((), device="meta"), "(Tensor)", RULE)
returns("a complex tensor", lambda: torch.ones((), dtype=torch.complex64), "(Tensor)", RULE)
returns("a sparse tensor", lambda: torch.ones(1).to_sparse(), end=FINISHED)
returns("a number that is none", BrokenFloat, "(BrokenFloat)", RULE)
returns("a number that exits", ExitingFloat, "SystemExit: 3")
returns("an item that interrupts", ExitingItem, "KeyboardInterrupt")
returns("what cannot be shown", BrokenRepr, "(BrokenRepr)", RULE)
returns("what exits when shown", ExitingRepr, "SystemExit: 4")
returns("a number of its own", lambda: EndlessFloat(0.5), end=FINISHED)
returns("a number that no other equals", lambda: NotEqual(0.5), end=FINISHED)
returns("a member of an enum", lambda: Color.RED, "(Color)", RULE)
returns("a class", lambda: Color, "(EnumType)", RULE)
returns("a function", lambda: print, "(builtin_function_or_method)", RULE)
returns("a generator", lambda: (n for n in "ab"), "(generator)", RULE)
returns("an endless iterator", itertools.count, "(count)", RULE)
returns("a dict", lambda: {METRIC: 0.5, "more": 1}, end=FINISHED)
returns("an empty dict", dict, "was never reported")
returns("a dict without its metric", lambda: {"acc": 1.0}, "was never reported")
returns("a dict of texts", lambda: {METRIC: "low"}, "'low' (str)")
returns("a dict of NaN", lambda: {METRIC: math.nan}, "returned nan")
returns("a dict with other keys", lambda: {3: 1.0}, "the name 3 is no string")
returns("a dict that holds itself", _recursive, "'self'")


async def _later() -> float:
    await asyncio.sleep(0)
    return 1.0


def _coroutine(trial: automl.TrialContext) -> object:
    later = _later()
    later.close()
    return later


KINDS["returns a coroutine"] = Kind(_coroutine, FAILED, "(coroutine)", RULE)
KINDS["returns its trial"] = Kind(lambda trial: trial, FAILED, "(TrialContext)")
KINDS["returns its params"] = Kind(lambda trial: trial.params, FAILED, "was never reported")

# Reports.

STEP_RULE = "a step is a whole number from 0"
good = {METRIC: 1.0}
reports("steps out of order", *((s, {METRIC: 1.0 + s}) for s in (5, 3, 9, 0, 7)), end=FINISHED)
reports("a step twice", (1, good), (1, {METRIC: 2.0}), end=FINISHED)
reports("a step below 0", (-1, good), cause=STEP_RULE)
reports("a huge step", (2**63, good), cause=STEP_RULE)
reports("the last step there is", (2**53, good), end=FINISHED)
reports("half a step", (0.5, good), cause=STEP_RULE)
reports("step True", (True, good), cause=STEP_RULE)
reports("a step that is a text", ("1", good), cause=STEP_RULE)
reports("a step that is NaN", (math.nan, good), cause=STEP_RULE)
reports("no step", (None, good), cause=STEP_RULE)
reports("a step of 10,000 digits", (lambda: 10**9_999, good), cause=STEP_RULE)
reports("a step of numpy's", (np.int8(3), good), end=FINISHED)
reports("a step that cannot be shown", (BrokenRepr(), good), cause=STEP_RULE)
reports("NaN", (0, {METRIC: math.nan}), cause="never a finite number")
reports("infinity, then a number", (0, {METRIC: math.inf}), (1, good), end=FINISHED)
reports("a text", (0, {METRIC: "low"}), cause="a metric is a number")
reports("what cannot be shown", (0, {METRIC: BrokenRepr()}), cause="a metric is a number")
reports("10**400", (0, {METRIC: 10**400}), cause="a metric is a number")
reports("no metrics", (0, None), cause="AttributeError")
reports("a list", (0, [1.0]), cause="AttributeError")
reports("nothing", (0, {}), cause="was never reported")
reports("a name that is a number", (0, {3: 1.0}), cause="the name 3 is no string")
reports("an empty name", (0, {**good, "": 1.0}), end=FINISHED)
reports("a long name", (0, {"x" * 1_000_000: 1.0}), cause="has 1000000 characters")
NAMES = {
    "lines": "a\nb\r\nc\u2028d",
    "escapes": "\x1b[2J\x1b]0;owned\x07",
    "a NUL": "a\x00b",
    "a lone surrogate": "a\ud800b",
    "a path": "../../../etc/passwd",
    "a slash": "/",
    "a dot": ".",
    "HTML": "<script>alert(1)</script>",
    "SQL": "'; DROP TABLE runs; --",
    "a formula": '=HYPERLINK("http://x")',
    "percents": "%s%n%(name)s{0}",
    "spaces": "  ",
    "right to left": "\u202egnp.exe",
    "emoji": "\U0001f469\u200d\U0001f52c" * 20,
    "a template": "${oc.env:HOME}",
}
for _name, _text in NAMES.items():
    reports(f"a name with {_name}", (0, {**good, _text: 1.0}), (1, {_text: 2.0}), end=FINISHED)
reports("1,000 metrics", (0, {**good, **{f"m{n}": float(n) for n in range(1_000)}}), end=FINISHED)
reports("a checkpoint that is no dict", (0, good, lambda: lambda: 3), end=FINISHED)
reports("a checkpoint that raises", (0, good, lambda: lambda: 1 / 0), cause="ZeroDivisionError")
reports("a checkpoint with a lock", (0, good, lambda: lambda: {"lock": threading.Lock()}))
reports("a checkpoint that holds itself", (0, good, lambda: _recursive))
reports("a checkpoint of what is not called", (0, good, 3), cause="")


def _report_from_a_thread(trial: automl.TrialContext) -> None:
    thread = threading.Thread(target=trial.report, args=(0, good))
    thread.start()
    thread.join()


def _report_in_a_handler(trial: automl.TrialContext) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: trial.report(1, good))
    os.kill(os.getpid(), signal.SIGUSR1)
    trial.report(2, good)


def _report_in_a_report(trial: automl.TrialContext) -> None:
    def state() -> dict[str, Any]:
        trial.report(8, {METRIC: 3.0})
        return {}

    trial.report(7, good, checkpoint=state)


def _report_in_a_fork(trial: automl.TrialContext) -> None:
    trial.report(0, good)
    if (pid := os.fork()) == 0:
        trial.report(1, {METRIC: -1e9})
        os._exit(0)
    os.waitpid(pid, 0)
    trial.report(2, good)


def _report_often(trial: automl.TrialContext) -> None:
    for step in range(N_REPORTS):
        trial.report(step, good)


N_REPORTS = 100_000 if "FAULT_POINTS" in os.environ else 5_000


def _swallow(trial: automl.TrialContext) -> None:
    for step in range(-10, 3):
        try:
            trial.report(step, good)
        except BaseException:  # noqa: BLE001  the fault
            continue


def _set_200_tags(trial: automl.TrialContext) -> None:
    for number in range(200):
        trial.set_tag(f"t{number}", number)


def _set_odd_tags(trial: automl.TrialContext) -> None:
    for name, text in NAMES.items():
        trial.set_tag(text, text)
        trial.set_tag(name, text)


does("reports from a thread", _report_from_a_thread)
does("reports in a signal handler", _report_in_a_handler)
does("reports in a report", _report_in_a_report)
does("reports in a fork", _report_in_a_fork)
does("reports often", _report_often)
does("swallows what report raises", _swallow)
does("sets odd tags", _set_odd_tags)
does("sets a tag of its own kind", lambda t: t.set_tag("automl.trial", 3), FAILED, "are taken")
does("sets a long tag", lambda t: t.set_tag("a", "x" * 10**6), FAILED, "has 1000000 characters")
does("sets 200 tags", _set_200_tags, FAILED, "at most 100")
does("sets a tag that cannot be shown", lambda t: t.set_tag("a", BrokenRepr()), FAILED, "no repr")

# Prints.


def prints(name: str, content: bytes) -> None:
    does(f"prints {name}", lambda trial: os.write(1, content))


prints("all bytes", bytes(range(256)) * 40)
prints("a line of 20 MB", b"x" * 20_000_000)
prints("100,000 empty lines", b"\n" * 100_000)
prints("carriage returns", b"".join(b"\r%d%%" % n for n in range(10_000)))
prints("escapes", b"\x1b[2J\x1b]0;owned\x07\x1bc\x9b31m")
does("prints lone surrogates", lambda t: print("\ud800\udc80"), FAILED, "UnicodeEncodeError")  # noqa: T201
does("prints after closing", lambda t: (sys.stdout.close(), os.write(1, b"after\n")))
does(
    "prints and fails",
    lambda t: (os.write(1, b"\x1b[2Jlast\x00words"), os._exit(7)),
    FAILED,
    "died",
)
does("logs what cannot be formatted", lambda t: logging.getLogger("x").warning("%d", "three"))
does("warns", lambda t: warnings.warn("odd \x1b[2J", stacklevel=1))

# The process.


def _remove_working_directory(trial: automl.TrialContext) -> None:
    gone = trial.directory / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()


def _make_folder_a_link(trial: automl.TrialContext) -> None:
    folder = trial.directory
    folder.rmdir()
    folder.symlink_to("/")


def _set_locale(trial: automl.TrialContext) -> None:
    for name in ("de_DE.UTF-8", "tr_TR.UTF-8", "C", "C.UTF-8"):
        try:
            locale.setlocale(locale.LC_ALL, name)
        except locale.Error:
            continue


def _catch_all_signals(trial: automl.TrialContext) -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number % 2 else lambda *_: None)


def _set_seeds(trial: automl.TrialContext) -> None:
    torch.manual_seed(1)
    np.random.seed(1)


def _set_torch(trial: automl.TrialContext) -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(3)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    torch.autograd.set_detect_anomaly(True)


def _change_path(trial: automl.TrialContext) -> None:
    sys.path[:] = ["/"]
    sys.argv = ["x"]
    sys.path_hooks.clear()
    sys.meta_path.append(sys.meta_path[0])


def _replace_hooks(trial: automl.TrialContext) -> None:
    sys.excepthook = threading.excepthook = lambda *_: os._exit(9)  # type: ignore[assignment]


def _trace(trial: automl.TrialContext) -> None:
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)


def _limit(trial: automl.TrialContext) -> None:
    for name, size in (("RLIMIT_FSIZE", 10**9), ("RLIMIT_CORE", 0), ("RLIMIT_NOFILE", 100)):
        limit = getattr(resource, name)
        resource.setrlimit(limit, (size, resource.getrlimit(limit)[1]))


def _limit_for_good(trial: automl.TrialContext) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))


def _remove_builtins(trial: automl.TrialContext) -> None:
    builtins.open = None  # type: ignore[assignment]
    del builtins.print


def _keep_files_open(trial: automl.TrialContext) -> None:
    KEPT.extend(open(os.devnull) for _ in range(200))  # noqa: SIM115


KEPT: list[object] = []


def _stay_in_inference_mode(trial: automl.TrialContext) -> None:
    KEPT.append(mode := torch.inference_mode())
    mode.__enter__()


def _close_files(trial: automl.TrialContext) -> None:
    os.closerange(3, 1_000)


def _set_time_zone(trial: automl.TrialContext) -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()


def _turn_off_the_collector(trial: automl.TrialContext) -> None:
    gc.disable()
    gc.set_threshold(1)


def _change_params(trial: automl.TrialContext) -> None:
    trial.params.clear()
    trial.number = -1


does("changes its folder", lambda t: os.chdir("/"))
does("removes its folder", _remove_working_directory)
does("removes the trial's folder", lambda t: shutil.rmtree(t.directory))
does("makes the trial's folder a link", _make_folder_a_link)
does("changes the umask", lambda t: os.umask(0o777))
does("changes the locale", _set_locale)
does("changes the time zone", _set_time_zone)
does("empties the environment", lambda t: os.environ.clear())
does("catches all signals", _catch_all_signals)
does("ignores the end of children", lambda t: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
does("leaves an alarm", lambda t: signal.setitimer(signal.ITIMER_REAL, 0.05))
does("blocks signals", lambda t: signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)))
does("sets seeds", _set_seeds)
does("changes torch", _set_torch)
does("stays in inference mode", _stay_in_inference_mode)
does("stays in autocast", lambda t: torch.set_autocast_enabled("cpu", True))
does("flushes denormal numbers", lambda t: torch.set_flush_denormal(True))
does("makes numpy raise", lambda t: np.seterr(all="raise"))
does("makes warnings errors", lambda t: warnings.simplefilter("error"))
does("changes sys.path", _change_path)
does("changes the recursion limit", lambda t: sys.setrecursionlimit(10**6))
does("lowers its limits", _limit)
does("lowers its limits for good", _limit_for_good)
does("lowers its priority", lambda t: os.nice(5))
does("leaves cores", lambda t: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]))
does("turns off the collector", _turn_off_the_collector)
does("replaces hooks", _replace_hooks)
does("traces", _trace)
does("changes decimals", lambda t: setattr(decimal.getcontext(), "prec", 3))
does("changes the switch interval", lambda t: sys.setswitchinterval(1.0))
does("changes the time-out of sockets", lambda t: socket.setdefaulttimeout(0.001))
does("removes builtins", _remove_builtins)
does("closes standard input", lambda t: os.close(0))
does("closes all files", _close_files, FAILED, "died")
does("keeps files open", _keep_files_open)
does("sets the log's level", lambda t: logging.basicConfig(level=1, force=True))
does("disables logging", lambda t: logging.disable(logging.CRITICAL))
does("leaves a thread", lambda t: threading.Thread(target=threading.Event().wait).start())
does("leaves a timer", lambda t: threading.Timer(1000, print).start())
does("leaves a grandchild", lambda t: subprocess.Popen(["sh", "-c", "sleep 3601 & sleep 3601"]))
does("leaves a daemon", lambda t: subprocess.Popen(["sleep", "3602"], start_new_session=True))
does("changes its params", _change_params)
does("leaves its group", lambda t: os.setpgid(0, os.getsid(0)), FAILED, "PermissionError")

# Ends.


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class ExitingText(Exception):
    def __str__(self) -> str:
        sys.exit(5)


class Own(BaseException):
    """An exception that `except Exception` lets pass."""


def _in_a_circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def _nested_groups() -> BaseException:
    error: Exception = ValueError("inmost")
    for _ in range(200):
        error = ExceptionGroup("group", [error])
    return error


def _chain() -> BaseException:
    error = ValueError("the last of 2,000")
    for _ in range(2_000):
        (outer := ValueError("outer")).__cause__ = error
        error = outer
    return error


def _recurse(trial: automl.TrialContext) -> None:
    _recurse(trial)


raises("KeyboardInterrupt", KeyboardInterrupt, "KeyboardInterrupt")
raises("SystemExit", lambda: SystemExit(0), "SystemExit: 0")
raises("SystemExit of a list", lambda: SystemExit([BrokenRepr()]), "SystemExit")
raises("GeneratorExit", GeneratorExit, "GeneratorExit")
raises("StopIteration", StopIteration, "StopIteration")
raises("an own BaseException", lambda: Own("odd"), "Own: odd")
raises(
    "an exception without text", lambda: Unprintable("x"), "Unprintable: <exception str() failed>"
)
raises("an exception whose text exits", ExitingText, "ExitingText")
raises("an exception of 10 MB", lambda: ValueError("x" * 10_000_000), "ValueError: xxx", "[cut")
raises("an exception with escapes", lambda: ValueError("\x1b[2J\x00\ud800"), "ValueError: ")
raises("causes in a circle", _in_a_circle, "ValueError: first")
raises("nested groups", _nested_groups, "ExceptionGroup")
raises("a chain of causes", _chain, "ValueError: outer")
raises("a pruning without reports", automl.TrialPruned, "TrialPruned was raised, but nothing")
raises("memory that is out", MemoryError, "does not fit", end="TooLargeOutcome")
does("recurses without end", _recurse, FAILED, "RecursionError")
does("exits", lambda t: sys.exit("cannot go on"), FAILED, "SystemExit: cannot go on")
does("ends at once with 0", lambda t: os._exit(0), FAILED, "died: exit status 0")
does("ends at once with 3", lambda t: os._exit(3), FAILED, "died: exit status 3")
does("becomes another program", lambda t: os.execv("/bin/true", ["true"]), FAILED, "died")
does("aborts", lambda t: os.abort(), FAILED, "SIGABRT")
does("reads address 0", lambda t: ctypes.string_at(0), FAILED, "SIGSEGV")
does("kills itself", lambda t: os.kill(os.getpid(), signal.SIGKILL), FAILED, "SIGKILL")
does("kills its group", lambda t: os.killpg(0, signal.SIGKILL), FAILED, "SIGKILL")


def _return_twice(trial: automl.TrialContext) -> None:
    os.fork()


def _leave_fork(trial: automl.TrialContext) -> None:
    if os.fork() == 0:
        threading.Event().wait()


does("forks and returns in both", _return_twice)
does("forks and hangs in one", _leave_fork)
does("forks and raises in one", lambda t: 1 / os.fork(), FINISHED)

# Hangs.

LATE = "exceeded execution.trial_timeout_seconds"


def _hold_the_gil(trial: automl.TrialContext) -> None:
    """Call C code that keeps the lock of the interpreter."""
    ctypes.PyDLL(None).sleep(3600)


def _ignore_and_hang(trial: automl.TrialContext) -> None:
    _catch_all_signals(trial)
    while True:
        try:
            threading.Event().wait()
        except BaseException:  # noqa: BLE001  the fault
            continue


def _hang_with_children(trial: automl.TrialContext) -> None:
    subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 3603 & sleep 3603"], start_new_session=True)
    threading.Event().wait()


does("waits for ever", lambda t: threading.Event().wait(), FAILED, LATE)
does("holds the GIL", _hold_the_gil, FAILED, LATE)
does("searches for ever", lambda t: re.match(r"(a+)+$", "a" * 60 + "b"), FAILED, LATE)
does("ignores signals and hangs", _ignore_and_hang, FAILED, LATE)
does("stops itself", lambda t: os.kill(os.getpid(), signal.SIGSTOP), FAILED, LATE)
does("hangs with children", _hang_with_children, FAILED, LATE)
does("hangs in its text", lambda t: print(Endless()), FAILED, LATE)  # noqa: T201


class Endless:
    def __repr__(self) -> str:
        threading.Event().wait()
        return ""
