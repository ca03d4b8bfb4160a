"""Makes the first section of a report: the result, what was gained, and what more would gain."""

from __future__ import annotations

import math
from collections.abc import Sequence

from automl.config import UNLIMITED_N_TRIALS, StudyConfig
from automl.record.study_record import StudyRecord
from automl.record.texts import counted, fit_line
from automl.record.trial_record import TrialRecord
from automl.report_page.findings import RangeEdge, comparable_trials, range_edges, search_gain
from automl.report_page.search_sections import page_params, page_value, show_value
from automl.report_page.section import ReportSection, ReportTable, text_table
from automl.report_page.study_data import StudyData
from automl.report_page.svg import number_text
from automl.search.gain_forecast import MIN_TRIALS_FOR_GAIN, likely_gain_limit
from automl.trial import (
    Direction,
    EnsembleBuilt,
    FinishedOutcome,
    PrunedOutcome,
    TrialState,
    standard_error,
)

N_BEST = 5
"""Number of trials in the table of the best."""


def verdict_section(data: StudyData, study: StudyConfig | None = None) -> ReportSection:
    """Return the section with the best result, what was gained, and whether more would help.

    `study` is for the command that goes on with it; None: none is named.
    """
    record, best = data.record, data.record.best()
    interrupted = _interrupted_sentences(data, study)
    if best is None or best.value is None:
        lines = (_no_result_sentence(record), *interrupted, _counts_sentences(record))
        return ReportSection("verdict", "Verdict", lines)
    sentences = [*_result_sentences(data, best), *interrupted]
    if not record.metrics.are_several:
        sentences += _gain_sentences(data)
    sentences += _baseline_sentences(data)
    if edges := range_edges(data, best):
        sentences.append(_edges_sentence(edges))
    sentences.append(_counts_sentences(record))
    best_trials = () if data.board else (_best_table(data),)  # the leaderboard has them
    tables = (*best_trials, *_scores(data))
    return ReportSection("verdict", "Verdict", tuple(sentences), tables=tables)


def _best_table(data: StudyData) -> ReportTable:
    record = data.record
    more = record.metrics.more_names
    rows = [
        (
            str(trial.number),
            page_value(trial),
            *(number_text(trial.values[name]) if name in trial.values else "" for name in more),
            *(show_value(trial.params[n]) if n in trial.params else "" for n in data.scales),
            trial.state.value,
        )
        for trial in record.ranking()[:N_BEST]
    ]
    columns = ("trial", record.metric.name, *more, *data.scales, "state")
    return text_table(columns, rows, title="The best trials", n_text=0)


# --- the result -----------------------------------------------------------------------------------


def _result_sentences(data: StudyData, best: TrialRecord) -> list[str]:
    """Return what the study gives, the most important first."""
    record = data.record
    if record.metrics.are_several:
        return _front_sentences(record, best)
    goal = "less is better" if record.metric.direction is Direction.minimize else "more is better"
    value = f"{record.metric.name} {page_value(best)} ({goal})"
    params = page_params(best.params) or "no params"
    if record.counts()[TrialState.FINISHED] == 0 and isinstance(best.outcome, PrunedOutcome):
        n = record.counts()[TrialState.PRUNED]
        which = f"the best of {n:,} pruned ones" if n > 1 else "the only one with a value"
        return [
            f"No trial finished; {which} is trial {best.number}: {value}, its best report until it "
            f"was stopped at step {best.outcome.step}, with {params}."
        ]
    trial = (
        f"The best trial is {best.number}: {value}, with {params}."
        f"{_reported_sentence(best, record.metric.name)}{_spread_sentence(best)}"
    )
    return [*_joint_model_sentences(data), trial]


def _joint_model_sentences(data: StudyData) -> list[str]:
    """Return what the model is that the study gives, if it is not simply the best trial's."""
    ensemble, again = data.record.ensemble, "trained again on more rows"
    if ensemble is None:
        return [f"The study gives its refit: the best model, {again}."] if data.has_refit else []
    members = [*ensemble.members]
    what = f"ensemble of {counted(len(members), 'model')}"
    if len(members) == 1:
        what = f"ensemble, which is trial {members[0]} alone"
    score = _ensemble_text(ensemble, data.record.metric.name)
    rows = f"on {counted(ensemble.n_rows, 'row')} that none of its models trained on"
    if data.has_refit:
        return [f"The study gives its refit, {again}: the {what} has {score} {rows}."]
    return [f"The study gives its {what}: {score} {rows}."]


def _ensemble_text(ensemble: EnsembleBuilt, metric: str) -> str:
    name = metric.removeprefix("val_")
    name = name if name in ensemble.scores else "loss"
    return f"{name} {number_text(ensemble.scores[name])}"


def _front_sentences(record: StudyRecord, best: TrialRecord) -> list[str]:
    """Return how large the front is, its knee, and the best trial by each metric."""
    metrics, front = record.metrics.metrics, record.front()
    if (point := record.point(best)) is not None and point.excess > 0:
        return [
            f"No trial is within study.constraints; trial {best.number} is the nearest, with "
            f"{page_params(best.params) or 'no params'}."
        ]
    n_finished = record.counts()[TrialState.FINISHED]
    if len(front) == 1:
        lead = f"Trial {best.number} is the best by every metric of {n_finished:,} finished trials"
        values = ", ".join(f"{m.name} {number_text(best.values[m.name])}" for m in metrics)
        return [f"{lead}: {values}, with {page_params(best.params) or 'no params'}."]
    ends = []
    for metric in metrics:
        end = min(front, key=lambda trial: metric.key(trial.values[metric.name]))
        ends.append(f"trial {end.number} has {metric.name} {number_text(end.values[metric.name])}")
    knee = ", ".join(f"{m.name} {number_text(best.values[m.name])}" for m in metrics)
    return [
        f"The front has {len(front)} of {n_finished:,} finished trials; trial {best.number}, its "
        f"knee, is a compromise: {knee}. The best by each metric: {', '.join(ends)}.",
        f"The knee has {page_params(best.params) or 'no params'}. Params and curves are shown by "
        f"{record.metric.name}, which leads.",
    ]


def _no_result_sentence(record: StudyRecord) -> str:
    why = "no trial has ended with a value, so nothing can be compared"
    if ranking := record.ranking():
        value = f"{record.metric.name} {page_value(ranking[0])}"
        why = f"no trial finished; the best report of a pruned one is trial {ranking[0].number}'s"
        return f"No result yet: {why}, {value}."
    return f"No result yet: {why}."


def _interrupted_sentences(data: StudyData, study: StudyConfig | None) -> list[str]:
    """Return where an interrupted study stands, and how it goes on."""
    record = data.record
    if data.is_running or not record.sweeps or record.how_ended() != "interrupted":
        return []
    n_ended = sum(n for state, n in record.counts().items() if state.is_final)
    n_wanted = record.n_trials or 0
    of = f" of {n_wanted:,}" if n_ended < n_wanted < UNLIMITED_N_TRIALS else ""
    trials = f"{n_ended:,}{of} trials" if of else counted(n_ended, "trial")
    resume = "" if study is None else f"; go on with: {data.resume_text(study)}"
    return [f"It was stopped at {trials}{resume or '.'}"]


def _reported_sentence(best: TrialRecord, metric: str) -> str:
    if (reported := best.reported.get(metric)) is None:
        return ""
    return f" That value was returned; its best report has {number_text(reported)}."


def _spread_sentence(trial: TrialRecord) -> str:
    outcome = trial.outcome
    if not isinstance(outcome, FinishedOutcome) or outcome.standard_error is None:
        return ""
    n, values = len(outcome.part_values), outcome.part_values
    if len({*values}) == 1:
        return f" Its {n} trainings have the same value, as if it did not depend on the seed."
    return (
        f" The ± is the standard error over {n} trainings, whose values are from "
        f"{number_text(min(values))} to {number_text(max(values))}."
    )


def _baseline_sentences(data: StudyData) -> list[str]:
    """Return how much better the best model is than those that need no search, where known."""
    metric, best, sweeps = data.record.metric, data.record.best(), data.record.sweeps
    known = [sweep.end.baseline for sweep in sweeps if sweep.end is not None and sweep.end.baseline]
    if not known or best is None or best.value is None:
        return []
    (name, simple), value = next(iter(known[-1].items())), best.value
    if not metric.direction.better(value, simple):
        return [
            f"It is no better than {name}, which says the same of all rows "
            f"({number_text(simple)} by the same rows)."
        ]
    change = f", {abs(value - simple) / abs(simple):.0%} better" if simple else ""
    return [
        f"By the same rows {name}, which says the same of all of them, has {number_text(simple)}: "
        f"the best trial is {number_text(abs(value - simple))} ahead{change}."
    ]


def _edges_sentence(edges: Sequence[RangeEdge]) -> str:
    names = " and ".join(edge.name for edge in edges)
    remedies = " ".join(dict.fromkeys(edge.remedy for edge in edges))
    where = (
        "lies at the edge of its range" if len(edges) == 1 else "lie at the edges of their ranges"
    )
    return f"The best {names} {where}: {remedies} would look beyond."


def _counts_sentences(record: StudyRecord) -> str:
    """Return how many trials there are in each state, and why no more were tried."""
    counts = {state.value: n for state, n in record.counts().items() if n}
    shown = ", ".join(f"{n:,} {state}" for state, n in counts.items()) or "none yet"
    end = record.sweeps[-1].end if record.sweeps else None
    why = f" No more were tried: {fit_line(end.reason)}." if end is not None and end.reason else ""
    return f"Trials: {shown}.{why}"


def _gain_sentences(data: StudyData) -> list[str]:
    """Return what the search gained, and what more trials would probably bring."""
    gain = search_gain(comparable_trials(data), data.record.metric.direction)
    if gain is None:
        return []
    sentences = []
    if gain.first != gain.best:
        change = abs(gain.best - gain.first) / abs(gain.first) if gain.first else math.inf
        size = f" ({change:.0%})" if change < 10 else ""
        sentences.append(
            f"The search brought it from {number_text(gain.first)} (first finished trial) to "
            f"{number_text(gain.best)}{size}."
        )
    elif gain.n_since:
        sentences.append(
            "No trial was better than the first one. Look at the ranges below before you try more."
        )
    if gain.forecast is None:
        few = f"Fewer than {MIN_TRIALS_FOR_GAIN} trials have values that compare"
        sentences.append(f"{few}: too few to say whether more would help.")
    else:
        limit = number_text(likely_gain_limit(gain.forecast), 2)
        sentences.append(
            f"As many trials again are expected to improve it by {number_text(gain.forecast, 2)}, "
            f"and in nine of ten cases by less than {limit} (the rule of study.stop_gain)."
        )
    return sentences


def _scores(data: StudyData) -> Sequence[ReportTable]:
    """Return a table of scores on unseen rows, if the study has been evaluated."""
    evaluations = [e for e in data.record.evaluations if e.scores]
    if not evaluations:
        return ()
    newest = next((e for e in reversed(evaluations) if e.kind.unseen), evaluations[-1])
    metrics = list(dict.fromkeys(m for scores in newest.scores.values() for m in scores))[:4]
    rows = [
        (name, *(_interval(scores.get(metric)) for metric in metrics))
        for name, scores in newest.scores.items()
    ]
    if (number := newest.repeated_trial) is not None:
        scores = newest.repeated_scores
        name = f"trial {number}, mean ± standard error of fresh trainings"
        rows.append((name, *(_mean_text(scores.get(metric, ())) for metric in metrics)))
    return (
        text_table(("model", *metrics), rows, title=f"Scores on {newest.rows}, 95 % intervals"),
    )


def _mean_text(scores: Sequence[float]) -> str:
    if not scores:
        return ""
    error = standard_error(scores) or 0.0
    return f"{number_text(sum(scores) / len(scores))} ± {number_text(error, 2)}"


def _interval(score: tuple[float, float, float] | None) -> str:
    if score is None:
        return ""
    value, low, high = score
    return f"{number_text(value)} ({number_text(low, 3)} to {number_text(high, 3)})"
