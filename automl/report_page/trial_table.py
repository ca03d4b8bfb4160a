"""Makes the columns and rows of the table of all trials, which the page's script sorts and filters.

In a study of a table it is the leaderboard: the refit and the ensemble come before the trials, the
baseline after them, and there are columns for the main metrics and for what each model costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from automl.config.metrics import JUDGED_PREFIX
from automl.record.leaderboard import MAIN_METRICS, LeaderboardRow, test_metric
from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.report_page.study_data import StudyData
from automl.report_page.svg import number_text
from automl.trial import FAMILY_PARAM, ParamValue, ScoreInterval

Cell: TypeAlias = "ParamValue | list[ParamValue]"
"""A value, or a number and the text of its uncertainty: `[0.91, "± 0.01"]`."""
CostColumn: TypeAlias = "tuple[str, Callable[[LeaderboardRow], Cell]]"


def trial_table(data: StudyData) -> tuple[list[str], list[list[Cell]]]:
    """Return the columns and rows of all ended trials, the best first; of a table the
    leaderboard."""
    ranked = {trial.number: place for place, trial in enumerate(data.record.ranking())}
    ended = sorted(data.ended, key=lambda t: (ranked.get(t.number, math.inf), t.number))
    names = list(dict.fromkeys(name for t in ended for name in t.params))
    columns, rows = _leaderboard(data, ended, names) if data.board else _trials(data, ended, names)
    return [fit_line(name, 60) for name in columns], rows


def _trials(
    data: StudyData, ended: Sequence[TrialRecord], names: Sequence[str]
) -> tuple[list[str], list[list[Cell]]]:
    record = data.record
    more = record.metrics.more_names
    columns = ["trial", record.metric.name, *more, *names, "state", "seconds"]
    rows: list[list[Cell]] = [
        [
            trial.number,
            _with_error(trial.value, trial.standard_error),
            *(_plain(trial.values.get(name)) for name in more),
            *(_plain(trial.params.get(name)) for name in names),
            trial.state.value,
            round(trial.seconds, 2),
        ]
        for trial in ended
    ]
    return columns, rows


def _leaderboard(
    data: StudyData, ended: Sequence[TrialRecord], names: Sequence[str]
) -> tuple[list[str], list[list[Cell]]]:
    by_trial = {row.trial: row for row in data.board if row.trial is not None}
    trials = {trial.number: trial for trial in ended}
    board = [row for row in data.board if row.trial is None or row.trial in trials]
    board += [LeaderboardRow("", trial=t.number) for t in ended if t.number not in by_trial]
    board.sort(key=lambda row: row.is_baseline)
    families = [name for name in names if name == FAMILY_PARAM]
    others = [name for name in names if name != FAMILY_PARAM]
    costs = _cost_columns(data)
    metric = data.record.metric.name
    rows = []
    for row in board:
        trial = None if row.trial is None else trials[row.trial]
        params: Mapping[str, ParamValue] = {} if trial is None else trial.params
        rows.append(
            [
                fit_line(row.name, 60) if trial is None else trial.number,
                *(_plain(params.get(name)) for name in families),
                _value_cell(row, metric),
                *(cell(row) for _, cell in costs),
                *(_plain(params.get(name)) for name in others),
                None if trial is None else trial.state.value,
            ]
        )
    columns = ["model", *families, metric, *(name for name, _ in costs), *others, "state"]
    return columns, rows


def _cost_columns(data: StudyData) -> list[CostColumn]:
    """Return the columns between the study's metric and the params, each with its cell of a row."""
    own, test = data.record.metric.name.removeprefix(JUDGED_PREFIX), test_metric(data.record)
    metrics = [
        name for name in MAIN_METRICS if name != own and any(name in r.scores for r in data.board)
    ]
    return [
        *((f"{JUDGED_PREFIX}{name}", _score_cell(name)) for name in metrics),
        (
            f"{test}, unseen rows",
            lambda row: None if row.test is None else _with_interval(row.test),
        ),
        ("fit seconds", lambda row: _plain(row.fit_seconds)),
        (
            "s per 1,000 rows",
            lambda row: None if not row.rows_per_second else _plain(1000 / row.rows_per_second),
        ),
        ("file kB", lambda row: None if row.size_bytes is None else _plain(row.size_bytes / 1e3)),
        ("weight", lambda row: _plain(row.weight)),
    ]


def _score_cell(name: str) -> Callable[[LeaderboardRow], Cell]:
    return lambda row: _with_interval(row.scores[name]) if name in row.scores else None


def _value_cell(row: LeaderboardRow, metric: str) -> Cell:
    """Return the value by the study's metric, with its interval or else its standard error.

    The value of a trial that trained several models on the same rows is their mean, and the
    interval is that of their mean prediction: it does not belong to the value.
    """
    score = row.scores.get(metric.removeprefix(JUDGED_PREFIX))
    if row.value is not None and score is not None:
        is_its_own = math.isclose(row.value, score.value, rel_tol=1e-4)
        if is_its_own and math.isfinite(score.low):
            return _with_interval(score)
    return _with_error(row.value, row.standard_error)


def _with_interval(score: ScoreInterval) -> Cell:
    if not math.isfinite(score.low + score.high):
        return _plain(score.value)
    ends = f"({number_text(score.low, 3)} to {number_text(score.high, 3)})"
    return [_plain(score.value), ends]


def _with_error(value: float | None, error: float | None) -> Cell:
    return _plain(value) if error is None else [_plain(value), f"± {number_text(error, 2)}"]


def _plain(value: ParamValue) -> ParamValue:
    """Return a value that JSON can hold, with at most five digits."""
    if isinstance(value, float):
        rounded = float(f"{value:.5g}")  # the largest number becomes infinite
        return rounded if math.isfinite(rounded) else str(value)
    return fit_line(value, 100) if isinstance(value, str) else value


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> dict[str, Any]:
    """Return the table in plain values for the page's script. Texts that are often repeated are
    places in the list that `words` has for their column."""
    words: dict[int, list[str]] = {}
    for i in range(len(columns)):
        texts = [row[i] for row in rows if row[i] is not None]
        known = list(dict.fromkeys(t for t in texts if isinstance(t, str)))
        if all(isinstance(t, str) for t in texts) and 0 < 3 * len(known) <= len(texts):
            words[i] = known
    places = {i: {word: place for place, word in enumerate(known)} for i, known in words.items()}
    coded = [
        [
            cell if cell is None or i not in places else places[i][str(cell)]
            for i, cell in enumerate(row)
        ]
        for row in rows
    ]
    return {"columns": list(columns), "rows": coded, "words": words}


def cell_text(cell: Cell) -> str:
    """Return the text of a cell in a table without the script."""
    if isinstance(cell, list):
        return " ".join(map(cell_text, cell)).replace(" ", "\u00a0")
    return "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
