"""Keeps `best.pt` of a study a link to its best model while a sweep changes which one that is."""

from __future__ import annotations

from pathlib import Path

from automl.record.study_directory import JOINED_FOLDER
from automl.record.winner_file import link_winner
from automl.running.features.feature import SweepEnding, SweepFeature, SweepSite
from automl.terminal.view import SweepView
from automl.trial import TrialOutcome


class WinnerLink(SweepFeature):
    """Points the link to the best model after each trial and at the end; once a second, too, since
    other sweeps may work on the study."""

    def __init__(self, site: SweepSite) -> None:
        self._site, self._folders = site, study_folders(site.files.path)

    @classmethod
    def make(cls, site: SweepSite) -> WinnerLink | None:
        """Return the feature. None for a final training, whose model is another study's."""
        return cls(site) if site.prepared().purpose.stands_alone else None

    def begin(self) -> None:
        """Mend the link that a killed sweep left."""
        self._link()

    def trial_ended(self, outcome: TrialOutcome) -> tuple[str, ...]:
        self._link()
        return ()

    def look(self, view: SweepView) -> SweepView:
        self._link()
        return view

    def end(self, ending: SweepEnding) -> None:
        """Point to the ensemble or the refit, if one was made."""
        self._link()

    def _link(self) -> None:
        best = self._site.study.best()
        for folder in self._folders:
            link_winner(folder, None if best is None else best.number)


def study_folders(path: Path) -> tuple[Path, ...]:
    """Return the sweep's folder, and that of the study in which it joined, if it did."""
    is_joined = len(path.parents) > 2 and path.parents[1].name == JOINED_FOLDER
    return (path, path.parents[2]) if is_joined else (path,)
