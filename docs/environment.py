"""The environment variables of the package, by name, with what each does.

`tests/docs/test_reference.py` holds the list against the sources.
"""

from __future__ import annotations

from collections.abc import Mapping

ENVIRONMENT: Mapping[str, str] = {
    "AUTOML_DEBUG": "`1`: an error shows its traceback.",
    "AUTOML_GAIN": "Is `1` while your code trains to be timed (`plan measure=true`); skip side "
    "effects then.",
    "AUTOML_SURVEY": "Is `1` while your code runs once on fake tensors, to learn its memory; skip "
    "side effects then, or set `admission.survey=none`.",
    "AUTOML_REFIT": "Is `1` for a program (`objective.command`) whose winner is trained again.",
    "AUTOML_TRIAL_DIR": "The folder of its trial, for a program. The trial's params are variables, "
    "too: `lr` is `AUTOML_LR`.",
    "AUTOML_CHECKPOINT_DIR": "A folder of its trial, for a program, which stays the same when the "
    "trial goes on after an interruption.",
    "AUTOML_TRIAL": "The number of its trial, for a program.",
    "AUTOML_WANDB_LOG": "The file of what a program logs by `wandb.log`. Set by the package.",
    "AUTOML_WEIGHTS": "The folder in which weights of foundation models are looked for.",
    "AUTOML_PROMISES": "The folder in which sweeps of one machine tell each other what memory they "
    "have reserved; empty: they tell nothing.",
    "AUTOML_WORKER_PID": "Marks the processes of a worker, so that none is left behind. Set by the "
    "package.",
    "AUTOML_LOGS_TO": "Where what your code logs to MLflow goes. Set by the package.",
    "MLFLOW_TRACKING_URI": "MLflow's store, where `tracking.uri` is not given.",
    "MLFLOW_TRACKING_USERNAME": "Your name for MLflow's server.",
    "MLFLOW_TRACKING_PASSWORD": "Your password for MLflow's server.",
    "MLFLOW_TRACKING_TOKEN": "Your token for MLflow's server, in place of a name and a password.",
    "MLFLOW_REGISTRY_URI": "MLflow's registry of models, where it is not the tracking server.",
    "JPY_PARENT_PID": "Is there where a notebook's cell runs `!automl …`: no table is redrawn. Set "
    "by Jupyter.",
    "CUDA_VISIBLE_DEVICES": "The GPUs of this process; a sweep uses no others.",
    "RAY_ADDRESS": "The Ray cluster of `ray.address=auto`.",
    "RAY_AUTH_MODE": "`token`: the cluster asks for a token, which the sweep needs, too.",
    "AWS_ENDPOINT_URL": "An S3 other than Amazon's, for `study.checkpoint_copies`.",
}
