"""How MLflow's UI shows a study: a view of its runs, kept with the experiment, and its address.

MLflow's list of runs shows no metric and no param by itself. A view that is shared sets columns and
order; MLflow keeps it as a tag of the experiment and takes its key in the address. The form of both
is not documented: read in the JavaScript of MLflow 3.17 (`viewStateShareKey`). Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from automl.tracking.cleaning import MAX_TAG_CHARACTERS, clean_key
from automl.tracking.run_update import CAUSE, STATE, VALUE

_KEY = "automl"
VIEW_TAG = f"mlflow.sharedViewState.{_KEY}"
EXPERIMENTS = "#/experiments?workflowType=machine_learning"
"""The list of experiments: without the type MLflow 3 opens on its GenAI side, without runs."""
_SEARCHED = re.compile(r"space\.(?!.*\.when\.)(.+)\.(?:low|choices)")
_BY_VALUE = f"metrics.`{VALUE}`"


def shared_view(settings: Mapping[str, str], time_ms: int) -> str:
    """The tag that sets the columns: state and value of the trials, then params; best first.

    Of the settings it takes the direction and the names of what is searched. Params that do not fit
    into a tag (about 60) are left out.
    """
    params = [f"params.`{clean_key(name)}`" for name in searched_params(settings)]
    while True:
        tag = _tag(params, minimizes=minimizes(settings), time_ms=time_ms)
        if len(tag) <= MAX_TAG_CHARACTERS:
            return tag
        params.pop()


def _tag(params: Sequence[str], *, minimizes: bool, time_ms: int) -> str:
    first, last = [f"tags.`{STATE}`", _BY_VALUE], f"tags.`{CAUSE}`"
    run = "attributes.`Run Name`"
    state = {
        "searchFilter": "",
        "orderByKey": _BY_VALUE,
        "orderByAsc": minimizes,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*first, *params, "attributes.`Duration`", last],
        "columnOrder": [run, "runDateAndNestInfo", *first, *params, "duration", last],
        "columnWidths": {run: 150, last: 400},
    }
    view = {"name": "Trials, best first", "createdAt": time_ms, "updatedAt": time_ms}
    return json.dumps(view | {"state": json.dumps(state, separators=(",", ":"))})


def searched_params(settings: Mapping[str, str]) -> Iterator[str]:
    """Params that have more than one value, in the order of the space."""
    found = (_SEARCHED.fullmatch(key) for key in settings)
    yield from dict.fromkeys(match[1] for match in found if match is not None)


def minimizes(settings: Mapping[str, str]) -> bool:
    return settings.get("study.direction") != "maximize"


def runs_with_view(experiment: str) -> str:
    """Where the UI shows the runs of an experiment in its shared view."""
    return f"#/experiments/{experiment}/runs?viewStateShareKey={_KEY}&workflowType=machine_learning"


def runs_by_value(experiment: str, *, minimizes: bool) -> str:
    """The same without the view, which an experiment of an earlier version lacks: no columns."""
    order = f"orderByKey=metrics.%60{VALUE}%60&orderByAsc={str(minimizes).lower()}"
    return f"#/experiments/{experiment}/runs?{order}&workflowType=machine_learning"
