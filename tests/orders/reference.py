"""The reference model of a study, and the comparison of all answers with it.

Plain dictionaries say what trials, states, values and counts must be after each command. README.md
has the rules, and the manuals that they come from.

Which trial has which params is the sampler's business: the model takes it from the event log, which
it reads by itself. What becomes of a trial follows from its params and from what was told or asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.orders.answers import Answers, Page
from tests.orders.logged_study import LoggedStudy, LoggedTrial
from tests.orders.objective import CAUSE, expected_outcome

NEAR_SECONDS = 0.02
"""Answers may differ so much in the time of devices."""


def must(holds: bool, what: str, *shown: object) -> None:
    """Raise AssertionError for a comparison that does not hold."""
    assert holds, f"{what}: {shown}"


@dataclass(frozen=True)
class Settings:
    """What an edit changes."""

    n_trials: int
    space: dict[str, dict[str, float]]


@dataclass
class Reference:
    """What is known of a study from the commands that it was given."""

    name: str
    settings: Settings
    edits: list[Settings] = field(default_factory=list)
    """The settings before each edit that stands."""
    n_edits: int = 0
    points: list[dict[str, float]] = field(default_factory=list)
    """Enqueued points; each is to be a trial's params."""
    n_requested: int = 0
    """The number of points, the last ones, that no sweep has seen yet."""
    stops: set[int] = field(default_factory=set)
    """Trials that the next sweep ends."""
    stopped: set[int] = field(default_factory=set)
    """Trials that were ended as pruned by a command."""
    told: dict[int, tuple[str, float | None]] = field(default_factory=dict)
    """How trials ended of which somebody told."""
    ended: dict[int, LoggedTrial] = field(default_factory=dict)
    """The trials that have ended, as they were then."""
    is_at_work: bool = False
    is_paused: bool = False
    end: str | None = None
    """How `status` must call the last sweep's end; None: it must not call it anything."""

    def edit(self, settings: Settings) -> None:
        self.edits.append(self.settings)
        self.settings = settings
        self.n_edits += 1

    def undo(self) -> None:
        self.settings = self.edits.pop()
        self.n_edits += 1

    # --- what the log must say -------------------------------------------------------------------

    def check_log(self, study: LoggedStudy) -> None:
        """Every trial is as it must be, and nothing of one that has ended has changed."""
        for number, trial in study.trials.items():
            known = self.ended.get(number)
            assert known is None or known == trial, f"trial {number} has ended, and changed"
            if trial.is_final:
                self._check_end(number, trial)
                self.ended[number] = trial
        assert self.ended.keys() <= study.trials.keys(), "a trial is lost"
        n_most = max([self.settings.n_trials, *(s.n_trials for s in self.edits)])
        assert len(study.trials) <= n_most, "more trials than study.n_trials"
        assert study.n_edits == self.n_edits, "edits in the log"

    def _check_end(self, number: int, trial: LoggedTrial) -> None:
        if number in self.told:
            state, value = self.told[number]
            assert (trial.state, trial.value) == (state, value), f"trial {number} was told"
            return
        if number in self.stopped:
            best = min(trial.reports.values(), default=math.nan)
            assert trial.state == "pruned", f"trial {number} was stopped"
            assert trial.value == best or math.isnan(best), f"trial {number}: its best so far"
            return
        expected = expected_outcome(trial.params)
        seen = (trial.state, trial.value, trial.reports)
        assert seen == (expected.state, expected.value, expected.reports), (
            f"trial {number}: {trial}"
        )
        assert trial.state != "failed" or trial.cause == CAUSE

    def untried(self, study: LoggedStudy, n_last: int = 0) -> list[dict[str, float]]:
        """Return the points, but for so many of the last, that no trial of its own has yet."""
        found = [trial.params for trial in study.trials.values()]
        missing = []
        for point in self.points[: len(self.points) - n_last]:
            match = next((params for params in found if point.items() <= params.items()), None)
            if match is None:
                missing.append(point)
            else:
                found.remove(match)
        return missing

    def n_asked(self, study: LoggedStudy) -> int:
        """Return how many trials were asked for, with those that wait for room in a sweep."""
        return len(study.trials) + len(self.untried(study, self.n_requested))

    # --- what answers must say -------------------------------------------------------------------

    def check_answers(self, answers: Answers, study: LoggedStudy, now: float) -> None:
        """Compare all answers of one moment with the log and with each other."""
        status, listed = answers.status, answers.listed
        self._check_counts(answers, study, now)
        must((status["study"], listed["name"]) == (self.name, self.name), "names")
        for name, answer in (("status", status), ("list", listed)):
            must(
                answer["n_trials"] == self.settings.n_trials,
                f"{name}: n_trials",
                answer["n_trials"],
            )
        n_ended = sum(trial.is_final for trial in study.trials.values())
        whole = f"{n_ended}/{self.settings.n_trials}"
        must(answers.progress == (whole, whole), "status and list for people", answers.progress)
        best = _best(study)
        for name, answer in (("status", status), ("list", listed)):
            shown = answer["best"] and (answer["best"]["number"], answer["best"]["value"])
            must(shown == best, f"{name}: best", shown, best)
        must(
            status["best_so_far"] == _best_so_far(study),
            "status: best_so_far",
            status["best_so_far"],
        )
        must(len(status["edits"]) == self.n_edits, "status: edits", status["edits"])
        self._check_end_words(answers)
        self._check_rows(answers.rows, study)
        if not self.is_at_work:
            seconds = study.device_seconds()
            for name, answer in (("status", status), ("list", listed)):
                shown_seconds = answer["device_seconds"] or 0.0
                is_near = abs(shown_seconds - seconds) < NEAR_SECONDS
                must(is_near, f"{name}: device time", shown_seconds, seconds)

    def _check_counts(self, answers: Answers, study: LoggedStudy, now: float) -> None:
        status, listed = answers.status["counts"], answers.listed["counts"]
        states = [trial.state for trial in study.trials.values()]
        n_outside = sum(t.is_outside and t.lease_until > now for t in study.trials.values())
        for state in ("finished", "pruned", "failed"):
            must(status.get(state, 0) == states.count(state), f"status: {state}", status)
        n_open = len(states) - sum(trial.is_final for trial in study.trials.values())
        if self.is_at_work:
            n_inside = sum(t.state == "running" and not t.is_outside for t in study.trials.values())
            must(status.get("running", 0) == n_inside + n_outside, "status: running", status)
            rows = answers.status["running"]
            must(len(rows) == n_inside + n_outside, "status: rows that run", rows)
        else:
            n_unseen = len(self.points)
            n_left = status.get("interrupted", 0) + status.get("waiting", 0)
            must(status.get("running", 0) == n_outside, "status: running outside", status)
            n_known = n_open - n_outside
            must(n_known <= n_left <= n_known + n_unseen, "status: interrupted", status, n_known)
        shown = {state: n for state, n in status.items() if n}
        same = {state: n for state, n in listed.items() if n} == shown
        must(same, "list and status: counts", status, listed)
        causes = sum(failure["n"] for failure in answers.status["failures"])
        must(causes == states.count("failed"), "status: failures by cause", causes)

    def _check_end_words(self, answers: Answers) -> None:
        ended, state = answers.status["ended"], answers.listed["state"]
        if self.is_at_work:
            word = "paused" if self.is_paused else "running"
            must((ended, state) == (None, word), "at work", ended, state)
        else:
            must(state == (ended or "interrupted"), "list and status: state", ended, state)
            must(self.end is None or state == self.end, "list: how it ended", state, self.end)

    def _check_rows(self, rows: dict[int, dict[str, Any]], study: LoggedStudy) -> None:
        must(rows.keys() == study.trials.keys(), "trials: numbers", [*rows])
        for number, trial in study.trials.items():
            expected = _as_left(expected_row(number, trial), rows[number], trial)
            must(rows[number] == expected, "trials: a row", rows[number], expected)

    def check_trial(self, shown: dict[str, Any], trial: LoggedTrial, number: int) -> None:
        """Compare what `status` says of one trial."""
        curve = {report["step"]: report["val_loss"] for report in shown.pop("curve")}
        must(curve == trial.reports, "status.trial: its curve", number, curve)
        expected = {"study": self.name, **_as_left(expected_row(number, trial), shown, trial)}
        must(shown == expected, "status.trial: its row", shown, expected)

    def check_page(self, page: Page, study: LoggedStudy) -> None:
        """Compare what the report says."""
        counts: dict[str, int] = {}
        for trial in study.trials.values():
            counts[trial.state] = counts.get(trial.state, 0) + 1
        finals = {
            state: n for state, n in counts.items() if state in ("finished", "pruned", "failed")
        }
        shown = {state: n for state, n in page.counts.items() if state in finals}
        must(not finals or shown == finals, "report: counts", shown, finals)
        for number, row in page.rows.items():
            trial = study.trials[number]
            must(row["state"] == trial.state, "report: state of a trial", row, trial)
            is_near = row["seconds"] is None or abs(row["seconds"] - trial.seconds) < 0.1
            must(is_near, "report: time of a trial", row, trial.seconds)


def expected_row(number: int, trial: LoggedTrial) -> dict[str, Any]:
    """Return the row that a trial must have in the table of trials."""
    reports = trial.reports
    best_step = min(reports, key=lambda step: (reports[step], step)) if reports else None
    value = trial.value if trial.is_final else None if best_step is None else reports[best_step]
    has_cause = trial.state in ("failed", "interrupted")
    return {
        "trial": number,
        "state": trial.state,
        "value": None if value is None or math.isnan(value) else value,
        **{f"params.{name}": param for name, param in trial.params.items()},
        **{f"tags.{name}": text for name, text in trial.tags.items()},
        "best_step": best_step,
        "n_reports": len(reports),
        "started": trial.attempts[0].start if trial.attempts else trial.ended,
        "ended": trial.ended,
        "seconds": pytest.approx(trial.seconds, abs=1e-3),
        "device": trial.attempts[-1].device if trial.attempts else "",
        "cause": trial.cause if has_cause else None,
    }


def _as_left(row: dict[str, Any], shown: Mapping[str, Any], trial: LoggedTrial) -> dict[str, Any]:
    """Return the row with the cause that is shown, where the log has none: there must be one."""
    return row | {"cause": shown["cause"] or "none is shown"} if trial.is_left else row


def _ranked(study: LoggedStudy) -> list[tuple[float, bool, int]]:
    """Return the trials that may be the best, the best first. Where a trial's value was never
    reported, pruned trials cannot be compared with it."""
    valued = {
        number: trial
        for number, trial in study.trials.items()
        if trial.state in ("finished", "pruned")
        and trial.value is not None
        and math.isfinite(trial.value)
    }
    are_returned = any(
        trial.state == "finished" and not _was_reported(trial) for trial in valued.values()
    )
    return sorted(
        (trial.value or 0.0, trial.state == "pruned", number)
        for number, trial in valued.items()
        if not (are_returned and trial.state == "pruned")
    )


def _was_reported(trial: LoggedTrial) -> bool:
    best = min(trial.reports.values(), default=math.nan)
    return math.isclose(trial.value or 0.0, best, rel_tol=0.01)


def _best(study: LoggedStudy) -> tuple[int, float] | None:
    ranked = _ranked(study)
    return (ranked[0][2], ranked[0][0]) if ranked else None


def _best_so_far(study: LoggedStudy) -> list[float]:
    values = {number: value for value, _, number in _ranked(study)}
    ended = sorted(
        (trial.ended or 0.0, number) for number, trial in study.trials.items() if trial.is_final
    )
    found: list[float] = []
    for _, number in ended:
        value = min([*found[-1:], *([values[number]] if number in values else [])], default=None)
        found += [] if value is None else [value]
    return found
