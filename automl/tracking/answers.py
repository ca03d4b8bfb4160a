"""What MLflow answers, as errors of ours: try again, never, perhaps never, deleted, gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.exceptions import MlflowException

from automl.tracking.store import explain
from automl.tracking.uri import TrackingUri

_NEVER_STATUSES = (400, 404, 405, 413, 415, 501)
"""What a server answers to a file that it will take at no time."""
_TOO_LARGE = "failed with error code 413"
"""A proxy's limit, in the words of MLflow's client."""
_REFUSALS = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST")


class NotTakenError(Exception):
    """Raised when MLflow does not take something now: a dead server, a locked database."""


class DeletedError(Exception):
    """Raised when a run or its experiment was deleted in the UI; both can be restored."""


class GoneError(Exception):
    """Raised when a run or experiment that was there is not: the store was replaced or purged."""


class RefusedError(NotTakenError):
    """Raised when MLflow will never take a value."""


class DoubtfulError(NotTakenError):
    """Raised when MLflow failed over a call that reached it: it may do so for ever, or not."""


@contextmanager
def translated(uri: TrackingUri) -> Iterator[None]:
    """MLflow's errors as ours, without credentials."""
    try:
        yield
    except MlflowException as error:
        text = explain(error, uri)
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise GoneError(text) from error
        if "must be in the 'active' state" in str(error):
            raise DeletedError(text) from error
        if error.error_code in _REFUSALS or _TOO_LARGE in str(error):
            raise RefusedError(text) from error
        raise (DoubtfulError if _has_failed(error) else NotTakenError)(text) from error
    except OSError as error:
        answered = getattr(getattr(error, "response", None), "status_code", None)
        refused = answered in _NEVER_STATUSES
        text = explain(error, uri)
        raise (RefusedError if refused else NotTakenError)(text) from error
    except (ValueError, TypeError, OverflowError) as error:
        # Of MLflow's client, over a value that it cannot write down, or an answer it cannot
        # read: a step beyond 2**63 is the first over HTTP, an internal error in a database.
        raise DoubtfulError(explain(error, uri)) from error


def _has_failed(error: MlflowException) -> bool:
    """Whether the store was reached and failed by itself: no transport, no lock, no time-out."""
    if error.error_code != "INTERNAL_ERROR":
        return False
    if "too many 500 error responses" in str(error):  # the client's words after its last try
        return True
    inner = error.__cause__ or error.__context__
    return "API request to" not in str(error) and not isinstance(inner, OSError)
