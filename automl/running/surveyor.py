"""Surveys trials of which nothing is known, one at a time, in a thread beside the loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from automl.admission.footprint import Structure
from automl.admission.requests import Requests
from automl.admission.surveys import Surveys
from automl.running.messages import Asked, Surveyed
from automl.running.survey import survey
from automl.training.plan import SessionSetup
from automl.training.survey.found import Survey, Unsurveyed
from automl.trial import RequestSource, TrialSpec

logger = logging.getLogger(__name__)


class Surveyor:
    """For the main thread; leaving the `with` ends a survey that is being made."""

    def __init__(
        self,
        setup: SessionSetup,
        spec_of: Callable[[Asked], TrialSpec],
        requests: Requests,
        post: Callable[[Surveyed], None],
    ) -> None:
        self._setup, self._spec_of = setup, spec_of
        self._requests, self._post = requests, post
        self._surveys = Surveys()
        self._begun: set[int] = set()
        self._done: set[int] = set()
        self._said: set[str] = set()
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(1, "survey")

    def is_surveying(self, trial: Asked) -> bool:
        """Whether what the trial will want is being found out; it is begun where it was not."""
        number = trial.number
        if number in self._done:
            return False
        if number not in self._begun:
            if (known := self._surveys.find(trial.params)) is not None:
                self._requests.survey(trial.params, known)
                self._done.add(number)
                return False
            self._begun.add(number)
            self._pool.submit(self._survey, trial)
        return True

    def take(self, surveyed: Surveyed) -> None:
        """What a survey saw is known to requests from now on."""
        self._done.add(surveyed.trial.number)
        match surveyed.found:
            case Survey(weights_bytes=weights, reserved_bytes=reserved):
                parts = (float(weights), float(reserved - weights))
                structure = Structure(parts, RequestSource.SURVEYED)
                self._surveys.add(surveyed.trial.params, structure)
                self._requests.survey(surveyed.trial.params, structure)
            case Unsurveyed(reason=reason) if reason not in self._said:
                self._said.add(reason)
                logger.warning("memory is not known before a trial runs: %s", reason)

    def _survey(self, trial: Asked) -> None:
        try:
            found = survey(self._setup, self._spec_of(trial), is_over=self._ending.is_set)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trial waits for an answer
            found = Unsurveyed(f"{type(error).__name__}: {error}")
        self._post(Surveyed(trial, found))

    def __enter__(self) -> Surveyor:
        return self

    def __exit__(self, *raised: object) -> None:
        self._ending.set()
        self._pool.shutdown(cancel_futures=True)
