"""Lists the values that a trial may change in its process, and puts them back after the trial.

Watching another value takes one more entry of `WATCHED_VALUES` and its test. Values are put back in
the order of the list. No library is imported here: its values are read only where it was imported.
"""

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
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from typing import Any, TypeAlias


@dataclass(frozen=True)
class WatchedValue:
    """A value of this process, or of the calling thread, that is put back after a trial."""

    name: str
    """Name of the value for people to read."""
    get: Callable[[], Any]
    put_back: Callable[[Any], None]
    """Restores the value that `get` returned before the trial. Raises where it cannot."""
    own_thread: bool = False
    """Whether each thread has a value of its own."""
    workers_only: bool = False
    """Whether the value is left alone in the sweep's own process, where it may be another's."""


# --- torch and numpy ---


def _library_value(
    library: str,
    name: str,
    get: Callable[[Any], Any],
    put_back: Callable[[Any, Any], object],
    *,
    own_thread: bool = False,
    workers_only: bool = False,
) -> WatchedValue:
    """Return an entry that reads as None, and is not put back, before the library is imported."""

    def get_imported() -> Any:
        module = sys.modules.get(library)
        return None if module is None else get(module)

    def put_back_imported(before: Any) -> None:
        if before is not None:
            put_back(sys.modules[library], before)

    return WatchedValue(name, get_imported, put_back_imported, own_thread, workers_only)


_torch_value = partial(_library_value, "torch")


def _device(torch: Any) -> tuple[Any, ...]:
    """Return the default device as a tuple; empty where none was set.

    No default device costs less at each call of torch than a default device `cpu`.
    """
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return () if context is None else (context.device,)


def _put_back_device(torch: Any, before: tuple[Any, ...]) -> None:
    torch.set_default_device(before[0] if before else None)


def _deterministic(torch: Any) -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn.deterministic,
        cudnn.benchmark,
        cudnn.enabled,
    )


def _put_back_deterministic(torch: Any, before: tuple[bool, ...]) -> None:
    cudnn = torch.backends.cudnn
    enabled, warns_only, cudnn.deterministic, cudnn.benchmark, cudnn.enabled = before
    if _deterministic(torch) != before:  # the first call imports torch's compiler, for seconds
        torch.use_deterministic_algorithms(enabled, warn_only=warns_only)


def _backends_with_precision(torch: Any) -> tuple[Any, ...]:
    """Return the backends that hold a float32 precision of their own, the more general first."""
    b = torch.backends
    return b, b.cuda.matmul, b.cudnn, b.cudnn.conv, b.cudnn.rnn, b.mkldnn, b.mkldnn.matmul


def _precision(torch: Any) -> tuple[str | None, ...]:
    matmul = None
    with suppress(RuntimeError):  # torch's older getter fails where its newer settings were used
        matmul = torch.get_float32_matmul_precision()
    return (matmul, *(backend.fp32_precision for backend in _backends_with_precision(torch)))


def _put_back_precision(torch: Any, before: tuple[str | None, ...]) -> None:
    matmul, *precisions = before
    if matmul is not None:
        torch.set_float32_matmul_precision(matmul)  # sets the precision of some backends, too
    for backend, value in zip(_backends_with_precision(torch), precisions, strict=True):
        if backend.fp32_precision != value:
            backend.fp32_precision = value


_AUTOCAST_DEVICES = ("cpu", "cuda")


def _autocast(torch: Any) -> tuple[Any, ...]:
    return tuple(
        (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in _AUTOCAST_DEVICES
    )


def _put_back_autocast(torch: Any, before: tuple[Any, ...]) -> None:
    for device, (enabled, dtype) in zip(_AUTOCAST_DEVICES, before, strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


def _refuse_inference_mode(torch: Any, before: bool) -> None:
    raise RuntimeError("only what entered it can leave it")


def _flushes_denormals(torch: Any) -> bool:
    """Return whether numbers below the smallest normal one become zero; torch does not tell."""
    smallest = torch.tensor(2.0**-126, dtype=torch.float32, device="cpu")
    return bool((smallest * 0.5).item() == 0)


# --- Python and the process ---


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return None


def _put_back_working_directory(before: str | None) -> None:
    if before is None:
        raise FileNotFoundError("it had been removed before the trial")
    os.chdir(before)


def _put_back_environment(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _sys_list(name: str) -> WatchedValue:
    """Return the entry of a list of `sys`: the list object itself is restored, and its items."""

    def get() -> tuple[list[str], tuple[str, ...]]:
        found: list[str] = getattr(sys, name)
        return found, tuple(found)

    def put_back(before: tuple[list[str], tuple[str, ...]]) -> None:
        list_object, items = before
        list_object[:] = items
        setattr(sys, name, list_object)

    return WatchedValue(f"sys.{name}", get, put_back)


def _umask() -> int:
    os.umask(umask := os.umask(0o077))
    return umask


_HANDLED = sorted(set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP})


def _signal_setup() -> tuple[Any, ...]:
    """Return the handlers, the blocked signals, and whether an alarm is set."""
    handlers = [signal.getsignal(number) for number in _HANDLED]
    alarm = signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0)
    return handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ()), alarm


def _put_back_signal_setup(before: tuple[Any, ...]) -> None:
    handlers, blocked, alarm = before
    if not alarm:
        signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in zip(_HANDLED, handlers, strict=True):
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _put_back_hooks(hooks: list[Any], before: tuple[Any, ...]) -> None:
    """Put back what was removed; a library that was imported since may have added a hook."""
    hooks[:] = [*before, *(hook for hook in hooks if hook not in before)]


_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


def _limits() -> tuple[Any, ...]:
    """Return the limits of the process, its niceness, and the cores that it may use."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    limits = [resource.getrlimit(limit) for limit in _LIMITS]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), cores


def _put_back_limits(before: tuple[Any, ...]) -> None:
    limits, niceness, cores = before
    for limit, sizes in zip(_LIMITS, limits, strict=True):
        if resource.getrlimit(limit) != sizes:
            resource.setrlimit(limit, sizes)
    if os.getpriority(os.PRIO_PROCESS, 0) != niceness:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if cores:
        os.sched_setaffinity(0, cores)


_INTERPRETER: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (_umask, os.umask),
    (lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (lambda: threading.excepthook, lambda hook: setattr(threading, "excepthook", hook)),
    (lambda: sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
    (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
    (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (
        lambda: decimal.getcontext().__reduce__()[1],
        lambda fields: decimal.setcontext(decimal.Context(*fields)),
    ),
    (lambda: dict(vars(builtins)), vars(builtins).update),
    (lambda: tuple(sys.meta_path), partial(_put_back_hooks, sys.meta_path)),
    (lambda: tuple(sys.path_hooks), partial(_put_back_hooks, sys.path_hooks)),
)
"""How settings of the interpreter and its process are read and set."""


def _put_back_interpreter(before: Sequence[Any]) -> None:
    for (get, put_back), value in zip(_INTERPRETER, before, strict=True):
        if get() != value:
            put_back(value)


def _warning_filters() -> tuple[tuple[Any, ...], int]:
    return tuple(warnings.filters), len(sys.modules)


def _put_back_warning_filters(before: tuple[tuple[Any, ...], int]) -> None:
    """Put the filters back, unless a library was imported since, which may have added its own."""
    filters, n_modules = before
    if len(sys.modules) == n_modules:
        warnings.resetwarnings()
        warnings.filters[:] = filters  # type: ignore[index]  # a list, whatever typeshed says


def _put_back_start_method(before: str | None) -> None:
    multiprocessing.set_start_method(before, force=True)


# --- loggers ---

LoggerSetup: TypeAlias = "tuple[tuple[logging.Handler, ...], int, bool, bool]"
"""Handlers of a logger, its level, whether it is disabled, and whether it propagates."""
_UNTOUCHED: LoggerSetup = ((), logging.NOTSET, False, True)


def _logger_setups() -> tuple[dict[str, LoggerSetup], int, int]:
    """Return the loggers' set-ups by name, the level that is disabled, and the number of modules.

    Loggers that nobody has set up are left out. `sys.modules` lists later modules behind those that
    are counted.
    """
    setups = {name: _logger_setup(logger) for name, logger in _loggers()}
    touched = {name: setup for name, setup in setups.items() if setup != _UNTOUCHED}
    return touched, logging.root.manager.disable, len(sys.modules)


def _put_back_logger_setups(before: tuple[dict[str, LoggerSetup], int, int]) -> None:
    """Set up all loggers as before, except the loggers of libraries imported since.

    A library stays imported and does not set up its loggers again in the next trial. They are named
    like one of its modules, or like a part of one.
    """
    setups, disabled, n_modules = before
    imported = {*islice(sys.modules, n_modules, None)}
    for name, logger in _loggers():
        setup = setups.get(name, _UNTOUCHED)
        if _logger_setup(logger) != setup and imported.isdisjoint(
            accumulate(name.split("."), "{}.{}".format)
        ):
            handlers, level, logger.disabled, logger.propagate = setup
            logger.handlers[:] = handlers
            logger.setLevel(level)
    if logging.root.manager.disable != disabled:
        logging.disable(disabled)


def _logger_setup(logger: logging.Logger) -> LoggerSetup:
    return tuple(logger.handlers), logger.level, logger.disabled, logger.propagate


def _loggers() -> Iterator[tuple[str, logging.Logger]]:
    """Yield all loggers by name, without the package's own, whose handlers are the sweep's.

    They may have ended when a trial in one of the sweep's threads ends.
    """
    yield logging.root.name, logging.root
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name != "automl":  # others are mere placeholders
            yield name, logger


# --- figures of matplotlib ---


def _open_figures() -> frozenset[int]:
    """Return the numbers of the figures that matplotlib keeps open."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return frozenset() if pyplot is None else frozenset(pyplot.get_fignums())


def _close_figures(before: frozenset[int]) -> None:
    for number in _open_figures() - before:
        sys.modules["matplotlib.pyplot"].close(number)


WATCHED_VALUES = (
    _torch_value(
        "default dtype",
        lambda torch: torch.get_default_dtype(),
        lambda torch, before: torch.set_default_dtype(before),
    ),
    _torch_value("default device", _device, _put_back_device, own_thread=True),
    _torch_value(
        "threads of torch",
        lambda torch: torch.get_num_threads(),
        lambda torch, before: torch.set_num_threads(before),
    ),
    _torch_value(
        "grad mode",
        lambda torch: torch.is_grad_enabled(),
        lambda torch, before: torch.set_grad_enabled(before),
        own_thread=True,
    ),
    _torch_value(
        "anomaly detection",
        lambda torch: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda torch, before: torch.autograd.set_detect_anomaly(*before),
    ),
    _torch_value("autocast", _autocast, _put_back_autocast, own_thread=True),
    _torch_value(
        "inference mode",
        lambda torch: torch.is_inference_mode_enabled(),
        _refuse_inference_mode,
        own_thread=True,
    ),
    _torch_value(
        "denormal numbers",
        _flushes_denormals,
        lambda torch, before: torch.set_flush_denormal(before),
        own_thread=True,
    ),
    _library_value(
        "numpy",
        "errors of numpy",
        lambda numpy: numpy.geterr(),
        lambda numpy, before: numpy.seterr(**before),
        workers_only=True,
    ),
    _torch_value("deterministic flags", _deterministic, _put_back_deterministic),
    _torch_value("float32 precision", _precision, _put_back_precision),
    # After torch's values: putting them back may import more of torch, which sets variables.
    WatchedValue("working directory", _working_directory, _put_back_working_directory),
    WatchedValue("environment", lambda: dict(os.environ), _put_back_environment),
    _sys_list("argv"),
    _sys_list("path"),
    WatchedValue(
        "start method of multiprocessing",
        lambda: multiprocessing.get_start_method(allow_none=True),
        _put_back_start_method,
    ),
    WatchedValue("logging", _logger_setups, _put_back_logger_setups),
    WatchedValue("figures of matplotlib", _open_figures, _close_figures),
    # After the environment, which has the variable TZ.
    WatchedValue("time zone", lambda: (time.tzname, time.timezone), lambda _: time.tzset()),
    WatchedValue("signals", _signal_setup, _put_back_signal_setup, workers_only=True),
    WatchedValue("limits of the process", _limits, _put_back_limits, workers_only=True),
    WatchedValue("warnings", _warning_filters, _put_back_warning_filters, workers_only=True),
    WatchedValue(
        "settings of the interpreter",
        lambda: [get() for get, _ in _INTERPRETER],
        _put_back_interpreter,
        workers_only=True,
    ),
)
"""The values that training code may leave changed. Modes of torch and functions of libraries that
were replaced are not watched: no trial that left these has been met."""
THREAD_VALUES = tuple(value for value in WATCHED_VALUES if value.own_thread)
PROCESS_VALUES = tuple(v for v in WATCHED_VALUES if not v.own_thread and not v.workers_only)

Values: TypeAlias = Mapping[str, Any]
"""Values by the name of their `WatchedValue`."""


def read_watched_values(watched: Sequence[WatchedValue] = WATCHED_VALUES) -> Values:
    """Return the present values of the entries."""
    return {w.name: w.get() for w in watched}


def put_back_watched_values(before: Values) -> Sequence[str]:
    """Put back the values that differ; return, for people to read, which failed and why."""
    failed = []
    for watched in (w for w in WATCHED_VALUES if w.name in before):
        try:
            if watched.get() != before[watched.name]:
                watched.put_back(before[watched.name])
        except BaseException as error:  # noqa: BLE001  whatever a library or the user's object raises
            failed.append(f"{watched.name} ({type(error).__name__}: {error})")
    return failed
