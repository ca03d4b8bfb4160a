"""An evaluation as people read it: a table by metric, and a sentence for what it means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from automl.commands.evaluation.parts import Ranked
from automl.trial import ENSEMBLE_NAME, Evaluated, refit_name, trial_name

COLUMNS = ("metric", "model", "score", "95 % interval", "difference", "")


def table_of(event: Evaluated) -> list[tuple[str, ...]]:
    """A row for each metric of each model; the first model, then what is compared with it."""
    names = names_of(event)
    first = event.models[0]
    rows: list[tuple[str, ...]] = []
    for metric in event.scores[first]:
        figure = _figures_like(event.scores[first][metric].value)
        for name in names:
            score = event.scores[name][metric]
            shown = metric if name == first else ""
            cells = (shown, names[name], figure(score.value), _span(score.low, score.high, figure))
            rows.append((*cells, *_against_first(event, name, metric, figure)))
    return rows


def names_of(event: Evaluated) -> dict[str, str]:
    """What each model is called in a table, by its name in the event."""
    models = {trial_name(number): f"trial {number}" for number in event.trials}
    if event.ensembled:
        models = {ENSEMBLE_NAME: ENSEMBLE_NAME} | models
    if event.refit_of_ensemble:
        models = {refit_name(None): f"refit of {ENSEMBLE_NAME}"} | models
    if event.refit_of is not None:
        models = {refit_name(event.refit_of): f"refit of {event.refit_of}"} | models
    return models | {name: name for name in event.scores if name not in models}


def records_of(event: Evaluated) -> list[dict[str, Any]]:
    """A row for each metric of each model, of plain values."""
    rows = []
    for metric in event.scores[event.models[0]]:
        for name, model in names_of(event).items():
            score = event.scores[name][metric]
            row = {"metric": metric, "model": model, "score": score.value}
            row |= {"low": score.low, "high": score.high}
            if (found := event.differences.get(name, {}).get(metric)) is not None:
                row |= {"difference": found.value, "difference_low": found.low}
                row |= {"difference_high": found.high, "verdict": found.verdict}
            rows.append(row | {"rows": event.rows})
    return rows


def part_table(found: Ranked) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of how trials rank on parts of the rows."""
    figure = _figures_like(found.losses[-1][0])
    columns = ["trained on", *(f"trial {number}" for number in found.trials)]
    rows = zip(found.n_rows, found.losses, strict=True)
    return columns, [[f"{n:,} rows", *map(figure, losses)] for n, losses in rows]


def lines_after(event: Evaluated) -> Iterator[str]:
    """What a table does not say by itself."""
    models = event.models
    yield (
        f"difference: from {names_of(event)[models[0]]}, with the 95 % interval of the difference "
        "itself (paired bootstrap, the same rows for both)"
        + (", all models together" if len(models) > 2 else "")
    )
    if not event.kind.unseen:
        yield (
            "these rows chose among trials, so that the scores flatter them; give rows that no "
            "sweep saw: data.test_path=FILE"
        )


def _against_first(
    event: Evaluated, name: str, metric: str, figure: Callable[[float], str]
) -> tuple[str, str]:
    found = event.differences.get(name, {}).get(metric)
    if found is None:
        return "", ""
    return f"{figure(found.value)} ({_span(found.low, found.high, figure)})", found.verdict


def _figures_like(score: float) -> Callable[[float], str]:
    """All figures of a metric with as many decimals: four digits of the score."""
    size = math.floor(math.log10(abs(score))) if score and math.isfinite(score) else 0
    decimals = min(max(0, 3 - size), 12) if size < 0 else max(0, 4 - max(size, 0))
    return lambda value: f"{value:.{decimals}f}"


def _span(low: float, high: float, figure: Callable[[float], str]) -> str:
    return f"{figure(low)} to {figure(high)}"
