"""A trial's memory, asked of its objective before it runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from automl.errors import AutoMLError
from automl.execution.confinement import Confinement
from automl.execution.remote import call_confined
from automl.record.texts import fit_line
from automl.training.plan import SessionSetup, SurveySetup
from automl.training.survey.found import Survey, Unsurveyed
from automl.trial import Entry, TrialSpec

LIMITS = Confinement(seconds=30.0)
"""See `Confinement`; its memory is the host's, and counts there."""


def survey(
    setup: SessionSetup,
    spec: TrialSpec,
    limits: Confinement = LIMITS,
    is_over: Callable[[], bool] = lambda: False,
) -> Survey | Unsurveyed:
    """What a trial will want of a GPU, or why that cannot be told. Raises nothing of the trial's.

    The objective (a user's function, or their network in the built-in training) is called once in a
    process of its own, without a GPU, and sees `trial.surveying`. Takes up to `limits.seconds`, so
    call it in a thread beside the loop, one at a time; two at once only share a core. The process
    is forked from the server of `execution.process.preload`, which should have loaded
    `automl.training.survey.child`: without it each survey takes seconds more. It leaves no process,
    no file of the study's and no run. `setup` is what workers are given, `spec` the trial's own.
    """
    with tempfile.TemporaryDirectory(prefix="automl-survey-", ignore_cleanup_errors=True) as folder:
        there = SurveySetup(setup, replace(spec, checkpoint_dir=str(Path(folder) / "trial")))
        entry = Entry("automl.training.survey.child:survey", there)
        environment = {"AUTOML_SURVEY": "1", "CUDA_VISIBLE_DEVICES": "", **throwaway(folder)}
        limits = replace(limits, environment={**environment, **limits.environment})
        try:
            answer = call_confined(entry, limits, is_over)
        except AutoMLError as error:
            return Unsurveyed(fit_line(str(error)))
    assert isinstance(answer, Survey | Unsurveyed)
    return answer


def throwaway(folder: str) -> dict[str, str | None]:
    """Temporary files where they are thrown away, and no run of a tracker anywhere."""
    return {
        "TMPDIR": folder,
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_REGISTRY_URI": None,
        "MLFLOW_RUN_ID": None,
        "MLFLOW_EXPERIMENT_ID": None,
        "MLFLOW_EXPERIMENT_NAME": None,
        "WANDB_MODE": "disabled",
    }
