"""Makes the report of a study from its folder, also while its sweep runs."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from automl.errors import AutoMLError, ConfigError, StorageError
from automl.models.family import load_families
from automl.record.study_files import StudyFiles
from automl.report_page.study_data import DEFAULT_REFRESH_SECONDS, StudyData, read_study_data
from automl.running.features.feature import SweepEnding, SweepFeature, SweepSite
from automl.terminal.view import read_view
from automl.trial import ReportWritten


def make_report(
    directory: Path, *, is_running: bool = False, refresh_seconds: float = DEFAULT_REFRESH_SECONDS
) -> Path:
    """Write the report of the study at `directory`; return its path.

    While a sweep runs, the page loads itself again each `refresh_seconds`. Raises ConfigError if
    the study cannot be read, StorageError if the page cannot be written.
    """
    from automl.report_page.page import write_report  # jinja2 would delay a sweep's first trial

    data = read_report_data(directory, is_running=is_running)
    family = load_families().get(data.record.settings.get("model", ""))
    choice = None if family is None else family.choice
    return write_report(data, directory, choice, refresh_seconds)


def read_report_data(directory: Path, *, is_running: bool = False) -> StudyData:
    """Return what the report of the study is made from; while it runs, with the trials that wait.

    Raises ConfigError if the study cannot be read.
    """
    data = read_study_data(directory, is_running=is_running)
    return replace(data, waiting=_waiting(directory)) if is_running else data


def _waiting(directory: Path) -> tuple[tuple[str, str], ...]:
    try:
        view = read_view(StudyFiles(directory).status)
    except ConfigError:
        return ()
    return tuple(
        ("the next trial" if row.number is None else f"trial {row.number}", row.reason)
        for row in view.waiting
        if not row.as_it_should
    )


class SweepReport(SweepFeature):
    """Writes the page on the study at the end of a sweep."""

    def __init__(self, site: SweepSite) -> None:
        self._site = site

    @classmethod
    def make(cls, site: SweepSite) -> SweepReport | None:
        """Return the feature. None for a final training, which is part of another study's page."""
        return cls(site) if site.prepared().purpose.stands_alone else None

    def end(self, ending: SweepEnding) -> None:
        site = self._site
        if not site.study.n_asked:
            return
        try:
            page = make_report(ending.path)
        except StorageError as error:  # the study is whole, and the page is made anew by `report`
            raise AutoMLError(str(error)) from error
        ending.report, ending.answer["report"] = page, os.path.relpath(page)
        site.log.append(ReportWritten(time.time()))
