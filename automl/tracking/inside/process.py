"""Puts a trial's store in MLflow's way, in a process that carries trials out, and out of it again.

MLflow's settings are the process's: its address in the environment, the experiment and the address
that an objective sets. They are put back when no trial runs any more, which is what `inline` needs:
there the process is the user's own, and while a trial runs other threads of theirs would log into a
trial, too. What the objective left open is ended with its trial, or the next one would write to it.

MLflow is not imported here before the objective has, unless its calls are to be redirected.

A program of another environment: its MLflow does not know a trial's store.

What it logs goes where it is set up there, which is said; or, where the user wants it in the
trial's run (`tracking.inside=redirect`), it is given that run by the variables that every MLflow
reads. Its values are then in MLflow alone: no events, so that nothing of it prunes or can be
rebuilt. Joined is the first run that it begins, as MLflow has it; a program that sets an experiment
before is refused by MLflow.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from automl.record.study_files import study_of_logged
from automl.record.texts import fit_line, redact
from automl.tracking.deliver.confirmed_offset import delivered_parent_run, read_delivered_runs
from automl.tracking.inside.plugin import TRIAL_SCHEME, TRIAL_URI, open_store
from automl.tracking.inside.running_trials import MlflowTrial, remark_once, run_trial_in_thread
from automl.tracking.inside.runs import TrialRuns
from automl.tracking.inside.wire import LOG_ADDRESS_VARIABLE, serve_trial
from automl.tracking.mlflow_loading import set_trial_environment
from automl.trial.library_redirect import LoggingTrial

_MLFLOW = "lib/python3*/*-packages/mlflow*-*.dist-info"
"""Below the environment's folder; mlflow-skinny is enough."""
_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_Found = TypeVar("_Found")


def has_mlflow(program: Path) -> bool:
    """Whether the environment that a program is installed in has MLflow, as far as can be seen."""
    return next(program.parent.parent.glob(_MLFLOW), None) is not None


def _run_of(log: Path, trial: int) -> str | None:
    found = read_delivered_runs(log)
    return None if found is None else found.runs.get(trial)


class ForeignPrograms:
    """What such programs are given; for one process that carries trials out, and its threads.

    `ask` is called while it waits, and may raise what ends the trial.
    """

    def __init__(self, uri: str, *, redirect: bool) -> None:
        self._uri, self._redirect = uri, redirect
        self._wait_seconds = _WAIT_SECONDS
        self._is_store_there = False

    def variables(
        self, program: Path, log: Path, trial: int, ask: Callable[[], None]
    ) -> Mapping[str, str]:
        """For a trial of the study of this event log."""
        if not has_mlflow(program):
            return {}
        if self._redirect:
            run = self._wait(lambda: _run_of(log, trial), ask)
            if run is not None:
                return {"MLFLOW_TRACKING_URI": self._uri, "MLFLOW_RUN_ID": run}
            remark_once(
                "MLflow has no run of the trial yet, so that its program goes on without it"
            )
            return {}
        remark_once(
            f"{program} is of another environment: what it logs goes where it is set up there, and "
            "neither into the trial's run nor to the pruner. To have it in the run: "
            "tracking.inside=redirect, or run it by this environment's Python"
        )
        if not self._is_store_there:  # two that made one store at a time would fail
            self._is_store_there = self._wait(lambda: delivered_parent_run(log), ask) is not None
        return {}

    def _wait(self, find: Callable[[], _Found | None], ask: Callable[[], None]) -> _Found | None:
        """What is found in time. Once it was not, trials are not held up for it any more."""
        ends = time.monotonic() + self._wait_seconds
        while (found := find()) is None and time.monotonic() < ends:
            ask()
            time.sleep(_LOOK_SECONDS)
        if found is None:
            self._wait_seconds = 0.0
        return found


_OWN = "mlflow.tracking._tracking_service.utils"
"""MLflow's module of addresses and stores."""
_FLUENT = "mlflow.tracking.fluent"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InsideConfig:
    """What a process that carries trials out is given. Picklable."""

    redirect: bool = False
    """What the objective logs to an address of its own goes to the trial's run, too."""
    uri: str = field(default="", repr=False)
    """Where the study is delivered to, with credentials."""


@functools.cache
def is_plugin_installed() -> bool:
    """Whether MLflow knows the store: a checkout that was updated is to be installed again."""
    known = TRIAL_SCHEME in {point.name for point in entry_points(group="mlflow.tracking_store")}
    if not known:
        logger.warning(
            "what objectives log through MLflow is not brought to their trials' runs, as this "
            "checkout was installed before it could be: python -m pip install --editable ."
        )
    return known


def open_inside(config: InsideConfig) -> MlflowInside:
    """See `automl.trial.library_redirect.LoggingRedirect`."""
    return MlflowInside(config)


class MlflowInside:
    """See `automl.trial.library_redirect.LoggingRedirect`."""

    def __init__(self, config: InsideConfig) -> None:
        self._redirect = config.redirect
        self._elsewhere = ForeignPrograms(config.uri, redirect=config.redirect)

    @contextmanager
    def importing(self) -> Iterator[None]:
        """See `LoggingRedirect.importing`."""
        with _in_force(self._redirect):
            yield
            _force.address = _address()  # one that a module sets as it is loaded is for all trials

    @contextmanager
    def trial(self, side: LoggingTrial) -> Iterator[None]:
        """See `LoggingRedirect.trial`."""
        with (
            _in_force(self._redirect),
            run_trial_in_thread(side) as trial,
            serve_trial(trial) as address,
        ):
            _lead_children_to(address)
            try:
                yield
            finally:
                os.environ.pop(LOG_ADDRESS_VARIABLE, None)
                _close()
                self._look_elsewhere()

    @contextmanager
    def program(
        self, side: LoggingTrial, elsewhere: Path | None, ask: Callable[[], None]
    ) -> Iterator[Mapping[str, str]]:
        """See `LoggingRedirect.program`."""
        if elsewhere is not None:
            log = study_of_logged(side.folder).events
            with run_trial_in_thread(side):
                yield self._elsewhere.variables(elsewhere, log, side.number, ask)
            return
        trial = MlflowTrial(side, TrialRuns(side.params))
        with serve_trial(trial) as address:
            own = dict(os.environ)
            names = set_trial_environment(own, TRIAL_URI)
            variables = {name: own[name] for name in names if name in own}
            variables |= {LOG_ADDRESS_VARIABLE: address or "", "MLFLOW_RUN_ID": ""}
            try:
                yield {} if address is None else variables
            finally:
                trial.end()

    def _look_elsewhere(self) -> None:
        """An objective may have an address of its own; then its values are not the study's."""
        address = _address()
        if address is not None and address != TRIAL_URI and not self._redirect:
            remark_once(
                f"its own set_tracking_uri({redact(address)!r}) is followed: what it logs goes "
                "there, and neither into the trial's run nor to the pruner. To bring it there: "
                "tracking.inside=redirect"
            )


def _lead_children_to(address: str | None) -> None:
    """Processes that a trial starts find it by the environment, which is the process's: where
    several trials run in one, theirs find none."""
    with _force.lock:
        os.environ.pop(LOG_ADDRESS_VARIABLE, None)
        if address is not None and _force.n_times == 1:
            os.environ[LOG_ADDRESS_VARIABLE] = address


class _ForcedSettings:
    """How often the settings are wanted, and what puts them back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_times = 0
        self.address: str | None = None
        """What was set before, or by the objective's module."""
        self.undo = ExitStack()


_force = _ForcedSettings()


@contextmanager
def _in_force(redirect: bool) -> Iterator[None]:
    """MLflow's settings while anybody wants them."""
    with _force.lock:
        _force.n_times += 1
        if _force.n_times == 1:
            _force.undo.enter_context(_settings(redirect))
            if redirect:
                _force.undo.enter_context(_redirected())
    try:
        yield
    finally:
        with _force.lock:
            _force.n_times -= 1
            if _force.n_times == 0:
                _force.undo.close()


@contextmanager
def _settings(redirect: bool) -> Iterator[None]:
    """Of an objective that logs to its trial; all is left as it was."""
    variables, _force.address = dict(os.environ), _address()
    experiment = getattr(sys.modules.get(_FLUENT), "_active_experiment_id", None)
    changed = set_trial_environment(os.environ, TRIAL_URI)
    try:
        yield
    finally:
        its_own = (
            not redirect and _address() not in (None, TRIAL_URI) and _address() == _force.address
        )
        if (fluent := sys.modules.get(_FLUENT)) is not None and not its_own:
            fluent._active_experiment_id = experiment  # type: ignore[attr-defined]  # its global
        if (utils := sys.modules.get(_OWN)) is not None and _address() != _force.address:
            utils.set_tracking_uri(_force.address)
        for name in changed:
            if name in variables:
                os.environ[name] = variables[name]
            else:
                os.environ.pop(name, None)


@contextmanager
def _redirected() -> Iterator[None]:
    """Every address leads to the trial's store."""
    from mlflow.tracking._tracking_service import utils

    registry: Any = utils._tracking_store_registry
    before: dict[str, Callable[..., Any]] = dict(registry._registry)
    for scheme in before:
        registry.register(scheme, open_store)
    registry._get_store_with_resolved_uri.cache_clear()
    try:
        yield
    finally:
        for scheme, builder in before.items():
            registry.register(scheme, builder)
        registry._get_store_with_resolved_uri.cache_clear()


def _address() -> str | None:
    """What the objective, or its module, has set; None: nothing."""
    return getattr(sys.modules.get(_OWN), "_tracking_uri", None)


def _close() -> None:
    """End what the objective has left open in this thread, and wait for what it logs in others."""
    fluent = sys.modules.get(_FLUENT)
    if fluent is None:
        return
    for close in (fluent.flush_async_logging, lambda: _end_runs(fluent)):
        try:
            close()
        except Exception as error:  # noqa: BLE001  of a store of the user's: not the trial's failure
            text = fit_line(f"{type(error).__name__}: {error}")
            logger.warning("MLflow inside the objective was not closed: %s", text)


def _end_runs(fluent: ModuleType) -> None:
    while fluent.active_run() is not None:
        fluent.end_run()
