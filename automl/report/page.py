"""Makes the HTML page of a report from its sections.

The page is one file without requests: style and script are in it. Pictures are SVG, so it says the
same without the script, which only sorts, filters and copies. `page.html.jinja` escapes all text.
"""

from __future__ import annotations

import base64
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from automl.config import StudyConfig
from automl.record.disk import write_atomically
from automl.record.study_files import (
    CALIBRATION_PLOT,
    ERRORS_PLOT,
    IMPORTANCES_PLOT,
    PREDICTED_PLOT,
    StudyFiles,
)
from automl.record.texts import fit_line, printable_text
from automl.report.findings import range_edges
from automl.report.front_section import front_section
from automl.report.parallel_section import parallel_section
from automl.report.param_sections import params_section, path_section
from automl.report.search_sections import curves_section, progress_section
from automl.report.section import ReportSection
from automl.report.study_data import StudyData
from automl.report.trial_details import trial_details
from automl.report.verdict_section import verdict_section
from automl.report.work_sections import (
    config_section,
    cost_section,
    failures_section,
    families_section,
    next_section,
    timeline_section,
)
from automl.trial import ParamValue

SCRIPTS = (
    "table.js",
    "pairs.js",
    "marks.js",
    "panel.js",
    "parallel.js",
    "curves.js",
    "commands.js",
)
"""The page's scripts, in their order; the first defines what the others share."""
N_STATIC = 15
"""Rows of the table of trials without the script."""


IMAGES = {
    IMPORTANCES_PLOT: "how much the loss rises where a column is shuffled",
    ERRORS_PLOT: "what rows of each class are taken for",
    CALIBRATION_PLOT: "predicted probabilities against observed shares",
    PREDICTED_PLOT: "predicted values against true ones",
}
"""Pictures of a study's ensemble, and what each shows."""
MAX_IMAGE_BYTES = 400_000


def report_sections(
    data: StudyData,
    study: StudyConfig,
    choice: str | None,
    images: Sequence[tuple[str, str]] = (),
) -> Sequence[ReportSection]:
    """Return the sections of the page, in their order. `choice`: the param that names the family
    of a model; None: all trials have one family."""
    best = data.record.best()
    overrides = [] if best is None else [edge.override for edge in range_edges(data, best)]
    params, failures = params_section(data), failures_section(data)
    cost = cost_section(data)
    glance = [part.sentences[0] for part in (params, failures, cost) if part is not None]
    verdict = verdict_section(data, study)
    code = [f"{line}." for line in data.record.code_changes()]
    made = (
        replace(verdict, sentences=(*verdict.sentences, *code, *glance)),
        next_section(data, study, overrides),
        front_section(data) or progress_section(data),
        failures,
        params,
        path_section(data),
        parallel_section(data),
        curves_section(data),
        families_section(data, choice, images),
        timeline_section(data),
        cost,
        config_section(data.record.settings, data.record.changed, data.record.edits),
    )
    return [section for section in made if section is not None]


def write_report(data: StudyData, directory: Path, choice: str | None = None) -> Path:
    """Write `report.html` of a study at its place, and return its path. Raises StorageError."""
    folder = os.path.relpath(directory.parent)
    folder = str(directory.parent) if folder.startswith("..") else folder
    study = StudyConfig(name=directory.name, dir=folder)
    path = StudyFiles(directory).report
    sections = report_sections(data, study, choice, _images(StudyFiles(directory).plots))
    write_atomically(path, report_page(data, sections, directory))
    return path


def _images(plots: Path) -> list[tuple[str, str]]:
    """Return the pictures of the ensemble, each with what it shows; links are left out."""
    found = []
    for name, text in IMAGES.items():
        file = plots / name
        if not file.is_symlink() and file.is_file() and file.stat().st_size <= MAX_IMAGE_BYTES:
            png = base64.b64encode(file.read_bytes()).decode("ascii")
            found.append((text, f"data:image/png;base64,{png}"))
    return found


def report_page(
    data: StudyData, sections: Sequence[ReportSection], directory: Path | None = None
) -> str:
    """Return the text of the page on a study. `directory`: where its logs and checkpoints are."""
    columns, rows = _trial_rows(data)
    plain = {"columns": columns, "rows": rows, "details": trial_details(data, directory)}
    return render_page(data.record.name, sections, plain, is_running=data.is_running)


def render_page(
    name: str,
    sections: Sequence[ReportSection],
    plain: Mapping[str, Any] | None = None,
    *,
    is_running: bool = False,
) -> str:
    """Return the text of a page. `plain`: columns, rows and details of all trials, if a section has
    their table."""
    plain = plain or {
        "columns": [],
        "rows": [],
        "details": {"devices": [], "trials": {}, "load": ""},
    }
    rows = plain["rows"]
    page = page_template("page.html.jinja").render(
        name=name,
        has_anchors=True,
        made=time.strftime("%Y-%m-%d %H:%M", time.localtime()),
        is_running=is_running,
        sections=sections,
        safe=Markup,
        style=Markup(page_file("page.css")),
        script=Markup("".join(page_file(f"scripts/{script}") for script in SCRIPTS)),
        columns=plain["columns"],
        static_rows=[[_cell_text(cell) for cell in row] for row in rows[:N_STATIC]],
        n_rows=len(rows),
        trials=Markup(_script_json(plain)),
    )
    return printable_text(page)


def page_file(name: str) -> str:
    """Return the text of a file that pages are made from."""
    return files("automl.report").joinpath(name).read_text("utf-8")


def page_template(name: str) -> Template:
    """Return a template that escapes all text that is put into it."""
    loader = FunctionLoader(page_file)
    return Environment(autoescape=True, undefined=StrictUndefined, loader=loader).get_template(name)


def _trial_rows(data: StudyData) -> tuple[list[str], list[list[ParamValue]]]:
    """Return the columns and rows of all ended trials, the best first."""
    record = data.record
    ranked = {trial.number: place for place, trial in enumerate(record.ranking())}
    ended = sorted(data.ended, key=lambda t: (ranked.get(t.number, math.inf), t.number))
    names = list(dict.fromkeys(name for t in ended for name in t.params))
    more = record.metrics.more_names
    columns = ["trial", record.metric.name, *more, *names, "state", "seconds"]
    rows: list[list[ParamValue]] = []
    for trial in ended:
        values = [trial.params.get(name) for name in names]
        rows.append(
            [
                trial.number,
                _plain(trial.value),
                *(_plain(trial.values.get(name)) for name in more),
                *(_plain(value) for value in values),
                trial.state.value,
                round(trial.seconds, 2),
            ]
        )
    return [fit_line(name, 60) for name in columns], rows


def _plain(value: ParamValue) -> ParamValue:
    """Return a value that JSON can hold, with at most five digits."""
    if isinstance(value, float):
        rounded = float(f"{value:.5g}")  # the largest number becomes infinite
        return rounded if math.isfinite(rounded) else str(value)
    return fit_line(value, 100) if isinstance(value, str) else value


def _cell_text(value: ParamValue) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _script_json(plain: object) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
