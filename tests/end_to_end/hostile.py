"""Objectives whose words a sweep must survive, found by `tests.end_to_end.hostile:NAME`."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from functools import partial
from itertools import count

import automl

LONG_WORD = "ab01" * 100_000


def one_raises_a_long_word(trial: automl.TrialContext) -> float:
    """Trial 1 fails at once; the others train until they are stopped, and end when they go on."""
    if trial.number == 1:
        raise ValueError("bad reply: " + LONG_WORD)
    if trial.restore() is not None:
        return 0.5
    for epoch in count():
        hashlib.pbkdf2_hmac("sha256", b"work", b"", 30_000)  # about 10 ms
        trial.report(epoch, {"val_loss": 0.5}, checkpoint=partial(dict, epoch=epoch))
    raise AssertionError("it counts without end")


def says(trial: automl.TrialContext) -> float:
    """Ends with the words that its param names; one of them does well."""
    how = trial.params["how"]
    sys.stdout.write(f"trial {trial.number} begins\n")
    if how == "well":
        return 0.5
    if how == "environment":
        raise RuntimeError(f"called with { ({n: os.environ[n] for n in SECRETS}) }")
    raise RuntimeError(WORDS[str(how)])


def leaks(trial: automl.TrialContext) -> float:
    """Lets a secret slip in each way in which an objective can."""
    import mlflow

    sys.stdout.write("connects with password=s3cret-printed\n")
    logging.getLogger("client").error("refused: token=s3cret-printed")
    subprocess.run(["sh"], input=b"echo password=s3cret-printed", check=True)
    trial.set_tag("note", "connects with password=s3cret-tag")
    trial.set_tag("api_key", "s3cret-tag")
    mlflow.log_params({"api_key": "s3cret-logged", "db": "postgresql://ann:s3cret-logged@db/x"})
    mlflow.set_tag("client", "Authorization: Bearer s3cret-logged")
    if trial.number == 0:
        return 0.5
    if trial.number == 1:
        sys.stdout.write("last words: password=s3cret-printed\n")
        sys.stdout.flush()
        os._exit(3)
    try:
        raise ValueError("postgresql://ann:s3cret-raised@db/x refused")
    except ValueError as error:
        secrets = {name: os.environ[name] for name in SECRETS}
        raise RuntimeError(f"password=s3cret-raised, with {secrets}") from error


SECRETS = {
    "MLFLOW_TRACKING_PASSWORD": "s3cret-mlflow",
    "PGPASSWORD": "s3cret-postgres",
    "AWS_SECRET_ACCESS_KEY": "s3cret-aws",
    "MY_SERVICE_TOKEN": "s3cret-token",
    "DATABASE_URL": "postgresql://ann:s3cret-url@db/x",
}
"""Variables of the sweep's environment."""
WORDS = {
    "umlaut": "the träne ran out",
    "surrogate": "odd: \udc80 and \ud800",
    "escape": "odd: \x1b]0;owned\x07\x1b[2J",
    "address": "cannot reach postgresql://ann:s3cret@db/x",
    "names": "refused: password=s3cret, token: s3cret, MY_KEY=s3cret, Authorization: Bearer s3cret",
    "again": "the träne ran out",
    "environment": "",  # its own
}
