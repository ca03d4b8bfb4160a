"""Turns what an objective logs through another library into events, and its metric into reports.

The redirection of those libraries is `automl.trial.library_redirect`; this is its side of a trial.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from automl.in_trial.reports.report_values import (
    MAX_NAME_CHARACTERS,
    MAX_TAG_CHARACTERS,
    MAX_TAGS,
    RESERVED_TAGS,
    is_same_metric_value,
)
from automl.in_trial.reports.trial_reports import TrialReports
from automl.record.study_files import LOGGED_FILES_FOLDER
from automl.record.texts import cut_text
from automl.trial import MAX_STEP, LoggedPoint, Params, ValuesLogged

logger = logging.getLogger(__name__)


class TrialLogReceiver:
    """The trial that a redirected library logs to, made in the trial's own thread."""

    def __init__(self, record: TrialReports) -> None:
        self._record = record
        self._thread = threading.get_ident()
        self._tags: set[str] = set()

    @property
    def number(self) -> int:
        return self._record.spec.trial

    @property
    def params(self) -> Params:
        return self._record.spec.params

    @property
    def folder(self) -> Path:
        return Path(self._record.spec.checkpoint_dir).absolute() / LOGGED_FILES_FOLDER

    def log(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log points, params and tags; points of the study's metric become reports.

        Raises TrialPruned or TrialInterrupted in the trial's own thread if the trial must end.
        """
        own_thread = threading.get_ident() == self._thread
        with self._record.lock:
            if own_thread:
                self._record.raise_verdict()
            others = [other for point in points if (other := self._report_or_keep(point))]
            if others or params:
                number = self._record.spec.number
                self._record.log(ValuesLogged(number, time.time(), tuple(others), params or {}))
            for name, text in (tags or {}).items():
                self._tag(name, text)
            if own_thread:  # another thread would ask for a checkpoint in the midst of training
                self._record.write_if_due()
                self._record.raise_verdict()

    def _report_or_keep(self, point: LoggedPoint) -> LoggedPoint | None:
        """Report a point of the study's metric; return the point to log, or None.

        If the objective reports the metric itself, the library's values of it are no second
        reports. A value that the objective has reported is dropped; another one is logged under the
        name `logged.` and the metric.
        """
        record, metric = self._record, self._record.goal.metric
        if point.name in record.goal.more_metrics:
            step = point.step if point.step in record.reports else record.last_step
            record.report_without_state(step or 0, {point.name: point.value})
            return None
        if point.name != metric:
            return point
        if record.reports_itself:
            steps = (point.step, record.last_step)
            reported = [
                record.reports.get(step, {}).get(metric) for step in steps if step is not None
            ]
            is_known = any(
                value is not None and is_same_metric_value(value, point.value) for value in reported
            )
            return None if is_known else point._replace(name=f"logged.{metric}")
        record.report_without_state(self._free_step(point.step), {metric: point.value})
        return None

    def _free_step(self, step: int) -> int:
        """Return the step, or the next one that has no value of the metric yet."""
        reports, metric = self._record.reports, self._record.goal.metric
        if 0 <= step <= MAX_STEP and metric not in reports.get(step, {}):
            return step
        step = -1 if self._record.last_step is None else self._record.last_step
        while step < 0 or metric in reports.get(step, {}):
            step += 1
        return step

    def _tag(self, name: str, text: str) -> None:
        """Set a tag if there is room; unlike `TrialContext.set_tag`, this raises no error."""
        if name.startswith(RESERVED_TAGS) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
            return
        # The library gets half of the tags; the other half is left for `set_tag`.
        has_room = len(self._tags) < MAX_TAGS // 2 and self._record.n_tags < MAX_TAGS
        if name in self._tags or has_room:
            self._tags.add(name)
            self._record.set_tag(name, cut_text(text, MAX_TAG_CHARACTERS))
        else:
            logger.warning("a trial logs more than %d tags: the others are not kept", MAX_TAGS // 2)
