"""Puts a trial's store in MLflow's way, in a process that carries trials out, and out of it again.

MLflow's settings are the process's: its address in the environment, the experiment and the address
that an objective sets. They are put back when no trial runs any more, which is what `inline` needs:
there the process is the user's own, and while a trial runs other threads of theirs would log into a
trial, too. What the objective left open is ended with its trial, or the next one would write to it.

MLflow is not imported here before the objective has, unless its calls are to be redirected.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from automl.record.files import study_of_logged
from automl.record.inside import TrialSide
from automl.record.redact import redact
from automl.record.texts import fit_line
from automl.tracking.environment import set_inside
from automl.tracking.inside.elsewhere import Elsewhere
from automl.tracking.inside.plugin import SCHEME, URI, open_store
from automl.tracking.inside.running import RunningTrial, remark, running
from automl.tracking.inside.runs import TrialRuns
from automl.tracking.inside.wire import VARIABLE, served

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
def is_installed() -> bool:
    """Whether MLflow knows the store: a checkout that was updated is to be installed again."""
    known = SCHEME in {point.name for point in entry_points(group="mlflow.tracking_store")}
    if not known:
        logger.warning(
            "what objectives log through MLflow is not brought to their trials' runs, as this "
            "checkout was installed before it could be: python -m pip install --editable ."
        )
    return known


def open_inside(config: InsideConfig) -> MlflowInside:
    """See `automl.record.inside.Inside`."""
    return MlflowInside(config)


class MlflowInside:
    """See `automl.record.inside.Inside`."""

    def __init__(self, config: InsideConfig) -> None:
        self._redirect = config.redirect
        self._elsewhere = Elsewhere(config.uri, redirect=config.redirect)

    @contextmanager
    def importing(self) -> Iterator[None]:
        """See `Inside.importing`."""
        with _in_force(self._redirect):
            yield
            _force.address = _address()  # one that a module sets as it is loaded is for all trials

    @contextmanager
    def trial(self, side: TrialSide) -> Iterator[None]:
        """See `Inside.trial`."""
        with _in_force(self._redirect), running(side) as trial, served(trial) as address:
            _lead_children_to(address)
            try:
                yield
            finally:
                os.environ.pop(VARIABLE, None)
                _close()
                self._look_elsewhere()

    @contextmanager
    def program(
        self, side: TrialSide, elsewhere: Path | None, ask: Callable[[], None]
    ) -> Iterator[Mapping[str, str]]:
        """See `Inside.program`."""
        if elsewhere is not None:
            log = study_of_logged(side.folder).events
            with running(side):
                yield self._elsewhere.variables(elsewhere, log, side.number, ask)
            return
        trial = RunningTrial(side, TrialRuns(side.params))
        with served(trial) as address:
            own = dict(os.environ)
            names = set_inside(own, URI)
            variables = {name: own[name] for name in names if name in own}
            variables |= {VARIABLE: address or "", "MLFLOW_RUN_ID": ""}
            try:
                yield {} if address is None else variables
            finally:
                trial.end()

    def _look_elsewhere(self) -> None:
        """An objective may have an address of its own; then its values are not the study's."""
        address = _address()
        if address is not None and address != URI and not self._redirect:
            remark(
                f"its own set_tracking_uri({redact(address)!r}) is followed: what it logs goes "
                "there, and neither into the trial's run nor to the pruner. To bring it there: "
                "tracking.inside=redirect"
            )


def _lead_children_to(address: str | None) -> None:
    """Processes that a trial starts find it by the environment, which is the process's: where
    several trials run in one, theirs find none."""
    with _force.lock:
        os.environ.pop(VARIABLE, None)
        if address is not None and _force.n_times == 1:
            os.environ[VARIABLE] = address


class _Force:
    """How often the settings are wanted, and what puts them back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_times = 0
        self.address: str | None = None
        """What was set before, or by the objective's module."""
        self.undo = ExitStack()


_force = _Force()


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
    changed = set_inside(os.environ, URI)
    try:
        yield
    finally:
        its_own = not redirect and _address() not in (None, URI) and _address() == _force.address
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
