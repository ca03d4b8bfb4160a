"""Lists all that a sweep does besides its trials, and calls the hooks of these features in order.

Settings stay in `config/`, commands in `cli/command_registry.py`, and what MLflow and the report
show in `trial/`: the table names them, and a test holds it to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from automl.errors import StorageError
from automl.running.features.ensemble import SweepEnsemble
from automl.running.features.feature import ClosingTable, SweepEnding, SweepFeature, SweepSite
from automl.running.features.live_page import SweepLivePage
from automl.running.features.notices import SweepNotices
from automl.running.features.refit_at_end import SweepRefit
from automl.running.features.report_page import SweepReport
from automl.running.features.retention import CheckpointRetention
from automl.running.features.scores import SweepScores
from automl.running.features.stop_gain import GainRule
from automl.running.features.stop_value import ValueRule
from automl.running.features.waits import SweepWaits
from automl.running.features.winner_link import WinnerLink
from automl.running.loop.messages import PlannedTrial
from automl.terminal.live_display import ViewFailureLog
from automl.terminal.view import SweepView
from automl.trial import EnsembleBuilt, ReportWritten, TrialFilesRemoved, TrialOutcome, TrialsWaited


@dataclass(frozen=True)
class Feature:
    """A line of the table: one thing that a sweep does besides its trials."""

    name: str
    """Name in the message about an error."""
    make: Callable[[SweepSite], SweepFeature | None]
    """Returns the feature of one sweep, or None if that sweep does not want it."""
    settings: tuple[str, ...] = ()
    """Keys of the settings that are the feature's own."""
    commands: tuple[str, ...] = ()
    """Commands that do the same for a study without a sweep."""
    events: tuple[type, ...] = ()
    """What the feature logs for MLflow and the report."""


FEATURES = (
    Feature("notices", SweepNotices.make),
    Feature("value", ValueRule.make, settings=("study.stop_value",)),
    Feature("gain", GainRule.make, settings=("study.stop_gain",)),
    Feature(
        "retention",
        CheckpointRetention.make,
        settings=("study.keep_best",),
        events=(TrialFilesRemoved,),
    ),
    Feature("waits", SweepWaits.make, events=(TrialsWaited,)),
    Feature(
        "ensemble",
        SweepEnsemble.make,
        settings=("study.finish",),
        commands=("ensemble",),
        events=(EnsembleBuilt,),
    ),
    Feature("refit", SweepRefit.make, commands=("refit",)),
    Feature("winner", WinnerLink.make),
    Feature("scores", SweepScores.make, commands=("evaluate",)),
    Feature("live page", SweepLivePage.make),
    Feature("report", SweepReport.make, commands=("report",), events=(ReportWritten,)),
)
"""All features, in the order in which their hooks run. The report is last, since it shows the
others."""


class SweepFeatures:
    """Calls the hooks of the features that one sweep has, in their order. It has to be closed."""

    def __init__(
        self,
        site: SweepSite,
        view_failures: ViewFailureLog,
        features: Sequence[Feature] = FEATURES,
    ) -> None:
        made = [(feature.name, feature.make(site)) for feature in features]
        self._named = [(f"the {name}", found) for name, found in made if found is not None]
        self._all = [feature for _, feature in self._named]
        self._view_failures = view_failures

    def begin(self) -> None:
        for feature in self._all:
            feature.begin()

    def trial_asked(self, trial: PlannedTrial) -> Iterator[str]:
        for feature in self._all:
            yield from feature.trial_asked(trial)

    def trial_began(self, trial: PlannedTrial, now_seconds: float) -> None:
        for feature in self._all:
            feature.trial_began(trial, now_seconds)

    def trial_paused(self, number: int) -> None:
        for feature in self._all:
            feature.trial_paused(number)

    def trial_ended(self, outcome: TrialOutcome) -> Iterator[str]:
        for feature in self._all:
            yield from feature.trial_ended(outcome)

    def why_no_more(self) -> str | None:
        """Return the first reason for which no more trials are wanted, or None."""
        reasons = (feature.why_no_more() for feature in self._all)
        return next((reason for reason in reasons if reason is not None), None)

    def kept_seconds(self) -> float:
        """Return the most seconds that a feature keeps for the end."""
        return max((feature.kept_seconds() for feature in self._all), default=0.0)

    def look(self, view: SweepView) -> SweepView:
        for name, feature in self._named:
            with self._view_failures.of(name):
                view = feature.look(view)
        return view

    def trials_over(self) -> None:
        for feature in self._all:
            feature.trials_over()

    def end(self, ending: SweepEnding) -> None:
        """Have each feature do its part of the end. One that fails does not keep the others."""
        for name, feature in self._named:
            with self._view_failures.of(name):
                try:
                    feature.end(ending)
                except StorageError as error:  # raised once the command that resumes is printed
                    ending.break_off(error)

    def closing(self, ending: SweepEnding) -> Iterator[str | ClosingTable]:
        for name, feature in self._named:
            lines: Sequence[str | ClosingTable] = ()
            with self._view_failures.of(name):
                lines = [*feature.closing(ending)]
            yield from lines

    def close(self) -> None:
        for feature in self._all:
            feature.close()
