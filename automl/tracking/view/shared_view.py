"""Describes how MLflow's UI shows a study: a view of its runs, stored with the experiment. Pure.

MLflow's list of runs shows no metric and no param by itself. A shared view sets columns and order;
MLflow keeps it as a tag of the experiment and takes its key in the address of the page. The form of
both is not documented: read in the JavaScript of MLflow 3.17 (`viewStateShareKey`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from automl.record.trial_record import metrics_from_settings
from automl.tracking.view.run_update import (
    CAUSE_TAG,
    MAX_TAG_CHARACTERS,
    STATE_TAG,
    VALUE_METRIC,
    best_key,
    clean_key,
)
from automl.trial import Direction

_KEY = "automl"
VIEW_TAG = f"mlflow.sharedViewState.{_KEY}"
EXPERIMENTS_PATH = "#/experiments?workflowType=machine_learning"
"""Path of the list of experiments. Without the type MLflow 3 opens its GenAI side, without runs."""
N_BEST = 10
"""Number of trials whose params the view shows."""
_SEARCHED_KEY = re.compile(r"space\.(?!.*\.when\.)(.+)\.(?:low|choices)")
_FAMILY = "family"
"""The param that names the family of models that a trial trains."""
_RUN = "attributes.`Run Name`"
_MIN_PIXELS, _CHARACTER_PIXELS, _PADDING_PIXELS, _ARROW_PIXELS = 90, 6, 30, 24
"""Sizes for a column whose header is not cut off; a sorted column has an arrow, too."""
_TRIALS, _OTHERS = "Trials", "Model metrics"
"""Sections of the chart page; MLflow puts the charts of all other metrics into the second."""


def named_value(settings: Mapping[str, str]) -> str:
    """Return the metric of MLflow's that holds a trial's final value by the study's metric."""
    metric = metric_of(settings)
    return VALUE_METRIC if metric == VALUE_METRIC else best_key(metric)


def shared_view_tag(
    settings: Mapping[str, str], time_ms: int, best: Sequence[Iterable[str]] = ()
) -> str:
    """Return the tag that sets the columns, the order and the first charts of a study's runs.

    `settings` are those of the study; `best` has the names of the params of each of the best
    trials, and is empty as long as none has ended. Params that do not fit into a tag (about 40) are
    left out.
    """
    params = [clean_key(name) for name in _params(settings, best)]
    while True:
        tag = _tag(settings, params, time_ms)
        if len(tag) <= MAX_TAG_CHARACTERS:
            return tag
        params.pop()


def _params(settings: Mapping[str, str], best: Sequence[Iterable[str]]) -> list[str]:
    """Return the names of the params to show.

    These are the family, then the params of the best trials that the space does not fix. Before any
    trial has ended they are all params that are searched.
    """
    best_params = [name for names in best for name in names if f"space.{name}" not in settings]
    family = (
        [_FAMILY] if _FAMILY in best_params or (not best and "model.families" in settings) else []
    )
    return [*dict.fromkeys([*family, *(best_params if best else searched_params(settings))])]


def _tag(settings: Mapping[str, str], params: Sequence[str], time_ms: int) -> str:
    value = named_value(settings)
    further = map(best_key, metrics_from_settings(settings).more_names)
    names = {f"metrics.`{value}`": value} | {f"metrics.`{key}`": key for key in further}
    names |= {f"params.`{name}`": name for name in params}
    widths = {
        key: max(_MIN_PIXELS, _PADDING_PIXELS + _CHARACTER_PIXELS * len(name))
        for key, name in names.items()
    }
    widths[f"metrics.`{value}`"] += _ARROW_PIXELS
    last = [f"tags.`{STATE_TAG}`", f"tags.`{CAUSE_TAG}`"]
    state = {
        "searchFilter": "",
        "orderByKey": f"metrics.`{value}`",
        "orderByAsc": minimizes_metric(settings),
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*names, "attributes.`Duration`", *last],
        "columnOrder": [_RUN, "runDateAndNestInfo", *names, "duration", *last],
        "columnWidths": {_RUN: 140, **widths, last[-1]: 400},
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": [
            _chart("LINE", metric_of(settings), xAxisKey="step"),
            _chart("BAR", value),
        ],
        "compareRunSections": [_section(_TRIALS, columns=2), _section(_OTHERS)],
        "isAccordionReordered": True,
    }
    view = {"name": "Trials, best first", "createdAt": time_ms, "updatedAt": time_ms}
    return json.dumps(view | {"state": json.dumps(state, separators=(",", ":"))})


def _chart(kind: str, metric: str, **more: str) -> dict[str, object]:
    key = clean_key(metric)
    return {
        "type": kind,
        "uuid": f"{_KEY}-{kind}-{key}",
        "metricSectionId": f"{_KEY}-{_TRIALS}",
        "metricKey": key,
        "displayName": key,
        "runsCountToCompare": 10,
        "deleted": False,
        "isGenerated": False,
        **more,
    }


def _section(name: str, columns: int = 3) -> dict[str, object]:
    return {
        "uuid": f"{_KEY}-{name}",
        "name": name,
        "display": True,
        "isReordered": False,
        "columns": columns,
    }


def searched_params(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the params that have more than one value, in the order of the space."""
    found = (_SEARCHED_KEY.fullmatch(key) for key in settings)
    yield from dict.fromkeys(match[1] for match in found if match is not None)


def metric_of(settings: Mapping[str, str]) -> str:
    if "study.metric" not in settings:
        return VALUE_METRIC
    return metrics_from_settings(settings).leading.name


def minimizes_metric(settings: Mapping[str, str]) -> bool:
    return metrics_from_settings(settings).leading.direction is Direction.minimize


def runs_view_address(experiment: str) -> str:
    """Return the address where the UI shows an experiment's runs in its shared view."""
    return f"#/experiments/{experiment}/runs?viewStateShareKey={_KEY}&workflowType=machine_learning"


def runs_by_value_address(experiment: str, *, minimizes: bool) -> str:
    """Return the address of the runs without a view, for experiments of earlier versions."""
    order = f"orderByKey=metrics.%60{VALUE_METRIC}%60&orderByAsc={str(minimizes).lower()}"
    return f"#/experiments/{experiment}/runs?{order}&workflowType=machine_learning"
