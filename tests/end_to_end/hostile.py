"""Objectives whose words a sweep must survive, found by `tests.end_to_end.hostile:NAME`."""

from __future__ import annotations

import hashlib
import os
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
