"""A probe is an objective that writes what it finds of its process, and trains a little network."""

from __future__ import annotations

import builtins
import decimal
import gc
import json
import locale
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch

import automl

METRIC = "val_loss"
SEEN = "seen.json"
"""The file in a trial's folder in which a probe says what it found."""


def probe(trial: automl.TrialContext) -> float:
    """Write what the process is like, and return the last loss of a small training."""
    seen = {name: repr(look()) for name, look in LOOKS.items()}
    torch.manual_seed(0)
    np.random.seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Tanh(), torch.nn.Linear(9, 1))
    inputs, loss = torch.as_tensor(np.random.normal(size=(33, 7)).astype("f")), math.nan
    for step in range(3):
        mean = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        gradients = torch.autograd.grad(mean, [*model.parameters()])
        with torch.no_grad():
            for weights, gradient in zip(model.parameters(), gradients, strict=True):
                weights.sub_(0.1 * gradient)
        loss = float(mean.item())
        trial.report(step, {METRIC: loss}, checkpoint=model.state_dict)
    seen |= {
        "loss": loss.hex(),
        "python": f"{1.5:n} {decimal.Decimal(1) / 3}",
    }
    (trial.directory / SEEN).write_text(json.dumps(seen))
    print(f"the probe of n={trial.params['n']}", flush=True)  # noqa: T201  looked for in its log
    return loss


def _smallest_product() -> float:
    """Return half of the smallest normal float32: 0 where denormal numbers are flushed."""
    return (torch.tensor(2.0**-126) * torch.tensor(0.5)).item()


def _umask() -> int:
    os.umask(umask := os.umask(0))
    return umask


LOOKS: dict[str, Callable[[], object]] = {
    "working directory": os.getcwd,
    "environment": lambda: sorted(
        v for v in os.environ.items() if v[0] not in ("AUTOML_LOGS_TO", "AUTOML_WORKER_PID")
    ),
    "umask": _umask,
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "time zone": lambda: time.localtime(0)[:6],
    "signals": lambda: [signal.getsignal(number) for number in range(1, 32)],
    "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
    "timers": lambda: signal.getitimer(signal.ITIMER_REAL),
    "limits": lambda: [
        resource.getrlimit(getattr(resource, name))
        for name in ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_STACK")
    ],
    "niceness": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "cores": lambda: sorted(os.sched_getaffinity(0)),
    "group": lambda: os.getpgrp() == os.getpid(),
    "recursion limit": sys.getrecursionlimit,
    "switch interval": sys.getswitchinterval,
    "hooks": lambda: (
        sys.excepthook is sys.__excepthook__,
        threading.excepthook is threading.__excepthook__,
        sys.gettrace(),
        sys.getprofile(),
    ),
    "path hooks": lambda: len(sys.path_hooks),
    "sys.path": lambda: sys.path,
    "sys.argv": lambda: sys.argv,
    "streams": lambda: (sys.stdout.isatty(), sys.stdout.encoding, sys.stdin is None),
    "collector": lambda: (gc.isenabled(), gc.get_threshold()),
    "warnings": lambda: [str(filter_) for filter_ in warnings.filters],
    "decimal": lambda: decimal.getcontext().prec,
    "socket": socket.getdefaulttimeout,
    "builtins": lambda: [n for n in ("open", "print", "float") if not hasattr(builtins, n)],
    "numpy": lambda: np.geterr(),
    "torch": lambda: (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    ),
    "flushing": _smallest_product,
    "logging": lambda: (logging.root.level, logging.root.handlers, logging.root.manager.disable),
    "threads": lambda: sorted(t.name for t in threading.enumerate()),
}
"""What a probe finds of its process."""
