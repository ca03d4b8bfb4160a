"""What a program imports as `wandb`: the installed W&B, or a small stand-in where there is none.

Either way the numbers that it logs are appended to the file AUTOML_WANDB_LOG, which its trial reads
(`wandb_log.py`). This file runs in the program's own Python, of any version that has W&B, and so
imports nothing of this package.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, NoReturn

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _numbers(data: Any, prefix: str = "") -> dict[str, float]:
    """Return the numbers of a mapping by name, those of mappings within as `outer.inner`."""
    found: dict[str, float] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found.update(_numbers(value, f"{name}."))
            continue
        if hasattr(value, "item"):  # an array of NumPy, a tensor of torch
            n = value.numel() if hasattr(value, "numel") else getattr(value, "size", 0)
            value = value.item() if n == 1 else None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def _report(data: Any, step: int | None) -> None:
    """Append the numbers of a call of `log` to the trial's file."""
    path, numbers = os.environ.get("AUTOML_WANDB_LOG"), _numbers(data)
    if not path or not numbers:
        return
    line = json.dumps({"step": step, "values": numbers}).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, line)
    finally:
        os.close(file)


# --- the installed W&B ----------------------------------------------------------------------------


def _installed() -> ModuleSpec | None:
    """Return where the installed W&B is; None: there is none."""
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("wandb", path)
    # A folder of runs, ./wandb, is no package.
    return spec if spec is not None and spec.origin is not None else None


def _import_installed(spec: ModuleSpec) -> None:
    """Import the installed W&B in the place of this module, and have its runs report."""
    module = importlib.util.module_from_spec(spec)
    sys.modules["wandb"] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]  # a package has a loader
    run_type: Any = importlib.import_module("wandb.sdk.wandb_run").Run
    summary_type: Any = importlib.import_module("wandb.sdk.wandb_summary").Summary
    log, update = run_type.log, summary_type.update

    def log_and_report(self: Any, data: Any, *args: Any, **kwargs: Any) -> None:
        step = args[0] if args else kwargs.get("step")
        step = self.step if step is None else step
        log(self, data, *args, **kwargs)
        _report(data, step)

    def update_and_report(self: Any, values: Any) -> None:
        update(self, values)
        _report(values, None)

    run_type.log, summary_type.update = log_and_report, update_and_report


# --- the stand-in ---------------------------------------------------------------------------------


class _AttributeDict(dict[str, Any]):
    """A mapping whose keys are attributes, too, and which `update` may call with any options."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def update(self, values: Any = (), **_: Any) -> None:  # type: ignore[override]
        super().update(vars(values) if type(values).__name__ == "Namespace" else values)


class _RunParams(_AttributeDict):
    """The params: those of the trial win over those of the program."""

    def setdefaults(self, values: Any) -> None:
        for name, value in dict(values).items():
            self.setdefault(name, value)

    def as_dict(self) -> dict[str, Any]:
        return dict(self)


class _RunSummary(_AttributeDict):
    """What a program says of a run as a whole."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        _report({name: value}, None)

    def update(self, values: Any = (), **_: Any) -> None:  # type: ignore[override]
        super().update(values)
        _report(dict(values), None)


class _NoValue:
    """Stands for whatever else W&B has: media, files, watched networks. Nothing comes of it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _NoValue()

    def __call__(self, *_: Any, **__: Any) -> _NoValue:
        return _NoValue()


class _StandInRun(_NoValue):
    """The run of a trial."""

    def __init__(self) -> None:
        self.config, self.summary, self.step = config, summary, 0
        self.id = self.name = "trial-" + os.environ.get("AUTOML_TRIAL", "0")
        self.dir = os.environ.get("WANDB_DIR", ".")
        self.project = self.entity = self.group = None

    def log(self, data: Any, step: int | None = None, commit: bool | None = None, **_: Any) -> None:
        self.step = self.step if step is None else step
        _report(data, self.step)
        dict.update(summary, data)
        self.step += commit is not False

    def __enter__(self) -> _StandInRun:
        return self

    def __exit__(self, *_: Any) -> None:
        finish()


config, summary = _RunParams(), _RunSummary()
run: _StandInRun | None = None


def init(config: Any = None, **_: Any) -> _StandInRun:
    """Begin the run of the trial, or return the one that has begun."""
    global run
    mine = globals()["config"]
    mine.update(config or {})
    path = os.environ.get("WANDB_SWEEP_PARAM_PATH")
    if path:
        with open(path, encoding="utf-8") as file:
            mine.update({name: entry["value"] for name, entry in json.load(file).items()})
    run = run or _StandInRun()
    return run


def log(data: Any, step: int | None = None, commit: bool | None = None, **_: Any) -> None:
    """Log values of the run that has begun."""
    if run is None:
        raise RuntimeError("call wandb.init() before wandb.log()")
    run.log(data, step, commit)


def finish(*_: Any, **__: Any) -> None:
    """End the run."""
    global run
    run = None


def agent(*_: Any, **__: Any) -> NoReturn:
    """Raise RuntimeError: the trials are begun by automl."""
    raise RuntimeError("the sweep is run by automl: call the training itself, not wandb.agent")


sweep = controller = agent


def __getattr__(name: str) -> Any:
    if name.startswith("__") or _spec is not None:
        raise AttributeError(f"module 'wandb' has no attribute {name!r}")
    return _NoValue


_spec = _installed()
if _spec is not None:
    _import_installed(_spec)
