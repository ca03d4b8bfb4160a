"""Makes MLflow log to the trial's store in a process that carries trials out, and undoes it again.

MLflow's settings belong to the process: the variables of the environment, and the address and
experiment that an objective sets. They are restored when no trial runs any more. `inline` needs
this, as its process is the user's own; while a trial runs there, other threads of the user log into
the trial, too. Whatever the objective leaves open is ended with its trial, or the next trial would
write to it. This module does not import MLflow before the objective does, unless its calls are to
be redirected.

A program of another environment has an MLflow that does not know a trial's store. Its values go
where its own environment says, and a remark says so. With `tracking.inside=redirect` they go to the
trial's run, by the variables that every MLflow reads. Then they are in MLflow alone: without
events, so that they neither prune nor can be rebuilt. The program joins the trial's run with the
first run that it begins; MLflow refuses a program that sets an experiment before.
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
from typing import Any, TypeVar

from automl.record.study_files import study_of_logged_files
from automl.record.texts import fit_line, redact_text
from automl.tracking.deliver.confirmed_offset import read_delivered_runs
from automl.tracking.inside.plugin import TRIAL_SCHEME, TRIAL_URI, open_store
from automl.tracking.inside.running_trials import (
    LOG_ADDRESS_VARIABLE,
    MlflowTrial,
    register_trial_of_thread,
    remark_once,
    serve_trial,
)
from automl.tracking.inside.runs import TrialRuns
from automl.tracking.mlflow_loading import set_trial_environment
from automl.trial.session_protocols import LoggingTrial

_MLFLOW_METADATA = "lib/python3*/*-packages/mlflow*-*.dist-info"
"""Pattern of MLflow's metadata below an environment's folder; mlflow-skinny matches, too."""
_WAIT_SECONDS = 60.0
"""Seconds that a program waits for its run, or for the store, at most."""
_POLL_SECONDS = 0.05
_Found = TypeVar("_Found")


class ForeignPrograms:
    """Chooses environment variables for programs of other environments.

    One instance serves a process that carries trials out, and all its threads. `ask` is called
    while it waits, and may raise an exception that ends the trial.
    """

    def __init__(self, uri: str, *, redirect: bool) -> None:
        self._uri, self._redirect = uri, redirect
        self._wait_seconds = _WAIT_SECONDS
        self._is_store_there = False

    def variables(
        self, program: Path, log: Path, trial: int, ask: Callable[[], None]
    ) -> Mapping[str, str]:
        """Return the variables for a program of a trial; `log` is the event log of its study."""
        if next(program.parent.parent.glob(_MLFLOW_METADATA), None) is None:
            return {}

        def find_run() -> str | None:
            found = read_delivered_runs(log)
            return None if found is None else found.runs.get(trial)

        if self._redirect:
            run = self._wait(find_run, ask)
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
        if not self._is_store_there:  # two processes that make one store at once fail
            self._is_store_there = self._wait(lambda: read_delivered_runs(log), ask) is not None
        return {}

    def _wait(self, find: Callable[[], _Found | None], ask: Callable[[], None]) -> _Found | None:
        """Return what `find` finds in time, else None; after a time-out it does not wait again."""
        deadline = time.monotonic() + self._wait_seconds
        while (found := find()) is None and time.monotonic() < deadline:
            ask()
            time.sleep(_POLL_SECONDS)
        if found is None:
            self._wait_seconds = 0.0
        return found


_SERVICE_MODULE = "mlflow.tracking._tracking_service.utils"
"""The module of MLflow that knows addresses and stores."""
_FLUENT_MODULE = "mlflow.tracking.fluent"
"""The module of MLflow that knows the active run and experiment."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InsideConfig:
    """Settings of MLflow inside trials, for a process that carries trials out. Picklable."""

    redirect: bool = False
    """Whether values that the objective logs to its own address go to the trial's run, too."""
    uri: str = field(default="", repr=False)
    """The URI that the study is delivered to, with credentials."""


@functools.cache
def is_plugin_installed() -> bool:
    """Return whether MLflow knows the trials' store, which an old installation lacks."""
    known = TRIAL_SCHEME in {point.name for point in entry_points(group="mlflow.tracking_store")}
    if not known:
        logger.warning(
            "what objectives log through MLflow is not brought to their trials' runs, as this "
            "checkout was installed before it could be: python -m pip install --editable ."
        )
    return known


def open_inside(config: InsideConfig) -> MlflowInside:
    """Return the redirect of MLflow for this process."""
    return MlflowInside(config)


class MlflowInside:
    """A `LoggingRedirect` (`automl.trial.session_protocols`) for MLflow."""

    def __init__(self, config: InsideConfig) -> None:
        self._redirect = config.redirect
        self._foreign_programs = ForeignPrograms(config.uri, redirect=config.redirect)

    @contextmanager
    def importing(self) -> Iterator[None]:
        with _force_settings(self._redirect):
            yield
            _force.address = _current_address()  # set by the module, it holds for all trials

    @contextmanager
    def trial(self, side: LoggingTrial) -> Iterator[None]:
        with (
            _force_settings(self._redirect),
            register_trial_of_thread(side) as trial,
            serve_trial(trial) as address,
        ):
            _set_address_for_children(address)
            try:
                yield
            finally:
                os.environ.pop(LOG_ADDRESS_VARIABLE, None)
                _close_mlflow()
                self._remark_own_address()

    @contextmanager
    def program(
        self, side: LoggingTrial, elsewhere: Path | None, ask: Callable[[], None]
    ) -> Iterator[Mapping[str, str]]:
        if elsewhere is not None:
            log = study_of_logged_files(side.folder).events
            with register_trial_of_thread(side):
                yield self._foreign_programs.variables(elsewhere, log, side.number, ask)
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

    def _remark_own_address(self) -> None:
        """Remark that the objective has an address of its own, so that its values go elsewhere."""
        address = _current_address()
        if address is not None and address != TRIAL_URI and not self._redirect:
            remark_once(
                f"its own set_tracking_uri({redact_text(address)!r}) is followed: what it logs "
                f"goes "
                "there, and neither into the trial's run nor to the pruner. To bring it there: "
                "tracking.inside=redirect"
            )


def _set_address_for_children(address: str | None) -> None:
    """Show the trial's address to the processes that the trial starts.

    They read it from the environment, which belongs to the whole process: where several trials run
    in one process, their children find no address.
    """
    with _force.lock:
        os.environ.pop(LOG_ADDRESS_VARIABLE, None)
        if address is not None and _force.n_users == 1:
            os.environ[LOG_ADDRESS_VARIABLE] = address


class _ForcedSettings:
    """Counts the users of the settings in this process, and restores the settings afterwards."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_users = 0
        self.address: str | None = None
        """The address that was set before, or by the objective's module."""
        self.undo = ExitStack()


_force = _ForcedSettings()


@contextmanager
def _force_settings(redirect: bool) -> Iterator[None]:
    """Apply the trial's settings of MLflow as long as at least one block needs them."""
    with _force.lock:
        _force.n_users += 1
        if _force.n_users == 1:
            _force.undo.enter_context(_trial_settings(redirect))
            if redirect:
                _force.undo.enter_context(_redirect_all_addresses())
    try:
        yield
    finally:
        with _force.lock:
            _force.n_users -= 1
            if _force.n_users == 0:
                _force.undo.close()


@contextmanager
def _trial_settings(redirect: bool) -> Iterator[None]:
    """Set MLflow to log to the trial within the block, and restore all settings afterwards."""
    variables, _force.address = dict(os.environ), _current_address()
    experiment = getattr(sys.modules.get(_FLUENT_MODULE), "_active_experiment_id", None)
    changed = set_trial_environment(os.environ, TRIAL_URI)
    try:
        yield
    finally:
        is_module_address = (
            not redirect
            and _current_address() not in (None, TRIAL_URI)
            and _current_address() == _force.address
        )
        if (fluent := sys.modules.get(_FLUENT_MODULE)) is not None and not is_module_address:
            fluent._active_experiment_id = experiment  # type: ignore[attr-defined]  # its global
        if (
            utils := sys.modules.get(_SERVICE_MODULE)
        ) is not None and _current_address() != _force.address:
            utils.set_tracking_uri(_force.address)
        for name in changed:
            if name in variables:
                os.environ[name] = variables[name]
            else:
                os.environ.pop(name, None)


@contextmanager
def _redirect_all_addresses() -> Iterator[None]:
    """Make every address lead to the trial's store within the block."""
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


def _current_address() -> str | None:
    """Return the address that the objective or its module has set; None if there is none."""
    return getattr(sys.modules.get(_SERVICE_MODULE), "_tracking_uri", None)


def _close_mlflow() -> None:
    """End the runs that the objective left open in this thread, and flush other threads' logs."""
    fluent = sys.modules.get(_FLUENT_MODULE)
    if fluent is None:
        return

    def end_runs() -> None:
        while fluent.active_run() is not None:
            fluent.end_run()

    for close in (fluent.flush_async_logging, end_runs):
        try:
            close()
        except Exception as error:  # noqa: BLE001  the user's own store may fail, not the trial
            text = fit_line(f"{type(error).__name__}: {error}")
            logger.warning("MLflow inside the objective was not closed: %s", text)
