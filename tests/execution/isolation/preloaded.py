"""What the fork server of these tests has loaded: a library with a hook and a finalizer."""

from __future__ import annotations

import atexit
import os
import weakref

import torch  # so that no worker loads it; what it imports later is for trials to do

import automl.objectives.training_session


class _Library:
    """As torch has them: what is registered with it is finalized at the end."""


def _say() -> None:
    os.write(1, b"the server's own\n")


library = _Library()
atexit.register(_say)
weakref.finalize(library, _say)
__all__ = ["automl", "library", "torch"]
