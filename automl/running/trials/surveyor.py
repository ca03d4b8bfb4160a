"""Surveys the memory of trials before they run, one at a time, in a thread beside the loop."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from automl.admission.footprint import MemoryStructure
from automl.admission.requests import RequestMaker, SurveyMemory
from automl.errors import AutoMLError
from automl.execution.child_calls import ProcessConfinement, call_confined
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyResult
from automl.objectives.training_plan import SessionSetup, SurveySetup
from automl.record.texts import fit_line
from automl.running.loop.messages import PlannedTrial, TrialSurveyed
from automl.trial import ProcessEntry, RequestSource, TrialSpec

LIMITS = ProcessConfinement(seconds=30.0)
"""The default limits of a survey. Its memory is the host's, and counts there."""


def survey_trial(
    setup: SessionSetup,
    spec: TrialSpec,
    limits: ProcessConfinement = LIMITS,
    is_over: Callable[[], bool] = lambda: False,
) -> SurveyResult | InconclusiveSurvey:
    """Return what a trial will want of a GPU, or why that cannot be told. Raises no error of the
    trial's.

    The objective (a user's function, or their network in the built-in training) is called once in a
    process of its own, without a GPU, and sees `trial.surveying`. The call takes up to
    `limits.seconds`. Call it in a thread beside the loop, one at a time: two at once only share a
    core.

    The process is forked from the server of `worker_process.preload_fork_server`, which should have
    loaded `automl.measure.survey.survey_run`: without it each survey takes seconds more. The survey
    leaves no process, no file of the study's and no run. `setup` is what workers get, `spec` the
    trial's own.
    """
    with tempfile.TemporaryDirectory(prefix="automl-survey-", ignore_cleanup_errors=True) as folder:
        survey_setup = SurveySetup(setup, replace(spec, checkpoint_dir=str(Path(folder) / "trial")))
        entry = ProcessEntry("automl.measure.survey.survey_run:survey", survey_setup)
        environment = {
            "AUTOML_SURVEY": "1",
            "CUDA_VISIBLE_DEVICES": "",
            **throwaway_environment(folder),
        }
        limits = replace(limits, environment={**environment, **limits.environment})
        try:
            answer = call_confined(entry, limits, is_over)
        except AutoMLError as error:
            return InconclusiveSurvey(fit_line(str(error)))
    assert isinstance(answer, SurveyResult | InconclusiveSurvey)
    return answer


def throwaway_environment(folder: str) -> dict[str, str | None]:
    """Return an environment whose files are temporary, and in which no tracker starts a run."""
    return {
        "TMPDIR": folder,
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_REGISTRY_URI": None,
        "MLFLOW_RUN_ID": None,
        "MLFLOW_EXPERIMENT_ID": None,
        "MLFLOW_EXPERIMENT_NAME": None,
        "WANDB_MODE": "disabled",
    }


logger = logging.getLogger(__name__)


class TrialSurveyor:
    """Surveys the trials of a sweep. For the main thread. Leaving the `with` ends a survey."""

    def __init__(
        self,
        setup: SessionSetup,
        spec_of: Callable[[PlannedTrial], TrialSpec],
        requests: RequestMaker,
        post: Callable[[TrialSurveyed], None],
    ) -> None:
        self._setup, self._spec_of = setup, spec_of
        self._requests, self._post = requests, post
        self._surveys = SurveyMemory()
        self._begun: set[int] = set()
        self._done: set[int] = set()
        self._warned_reasons: set[str] = set()
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(1, "survey")

    def is_surveying(self, trial: PlannedTrial) -> bool:
        """Return whether a survey of the trial is running. A survey that is missing is started."""
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

    def take(self, surveyed: TrialSurveyed) -> None:
        """Pass the result of a survey on to later requests."""
        self._done.add(surveyed.trial.number)
        match surveyed.found:
            case SurveyResult(weights_bytes=weights, reserved_bytes=reserved):
                parts = (float(weights), float(reserved - weights))
                structure = MemoryStructure(parts, RequestSource.SURVEYED)
                self._surveys.add(surveyed.trial.params, structure)
                self._requests.survey(surveyed.trial.params, structure)
            case InconclusiveSurvey(reason=reason) if reason not in self._warned_reasons:
                self._warned_reasons.add(reason)
                logger.warning("memory is not known before a trial runs: %s", reason)

    def _survey(self, trial: PlannedTrial) -> None:
        try:
            found = survey_trial(self._setup, self._spec_of(trial), is_over=self._ending.is_set)
        except Exception as error:  # noqa: BLE001 - whatever it is, the trial waits for an answer
            found = InconclusiveSurvey(f"{type(error).__name__}: {error}")
        self._post(TrialSurveyed(trial, found))

    def __enter__(self) -> TrialSurveyor:
        return self

    def __exit__(self, *raised: object) -> None:
        self._ending.set()
        self._pool.shutdown(cancel_futures=True)


class NoSurveys:
    """Stands in for `TrialSurveyor` in a sweep whose trials are not surveyed."""

    def is_surveying(self, trial: PlannedTrial) -> bool:
        """Return False, since no trial waits for a survey."""
        return False

    def take(self, surveyed: TrialSurveyed) -> None:
        raise AssertionError(f"trial {surveyed.trial.number}: nothing is surveyed")

    def __enter__(self) -> NoSurveys:
        return self

    def __exit__(self, *raised: object) -> None:
        """Do nothing, since no survey runs."""
