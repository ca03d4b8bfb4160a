"""Makes the HTML page of a report from its sections.

The page is one file without requests: style and script are in it. Pictures are SVG, so it says the
same without the script, which only sorts, filters and copies. `page.html.jinja` escapes all text.
"""

from __future__ import annotations

import json
import os
import re
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
from automl.record.study_files import StudyFiles
from automl.record.texts import printable_text
from automl.report_page.findings import range_edges
from automl.report_page.front_section import front_section
from automl.report_page.leaderboard_section import ensemble_section, leaderboard_section
from automl.report_page.parallel_section import parallel_section
from automl.report_page.param_sections import params_section, path_section
from automl.report_page.search_sections import curves_section, progress_section
from automl.report_page.section import ReportSection
from automl.report_page.study_data import DEFAULT_REFRESH_SECONDS, StudyData
from automl.report_page.trial_details import trial_details
from automl.report_page.trial_table import cell_text, plain_table, trial_table
from automl.report_page.verdict_section import verdict_section
from automl.report_page.work_sections import (
    config_section,
    cost_section,
    failures_section,
    next_section,
    timeline_section,
)

SCRIPTS = (
    "table.js",
    "pairs.js",
    "marks.js",
    "panel.js",
    "parallel.js",
    "curves.js",
    "commands.js",
    "live.js",
)
"""The page's scripts, in their order; the first defines what the others share."""
N_STATIC = 15
"""Rows of the table of trials without the script."""


def report_sections(
    data: StudyData,
    study: StudyConfig,
    choice: str | None,
) -> Sequence[ReportSection]:
    """Return the sections of the page, in their order. `choice`: the param that names the family
    of a model; None: all trials have one family."""
    best = data.record.best()
    edges = [] if best is None else range_edges(data, best)
    overrides = [edge.override for edge in edges if edge.override is not None]
    params, failures = params_section(data), failures_section(data)
    cost = cost_section(data)
    glance = [part.sentences[0] for part in (params, failures, cost) if part is not None]
    verdict = verdict_section(data, study)
    code = [f"{line}." for line in data.record.code_changes()]
    made = (
        replace(verdict, sentences=(*verdict.sentences, *code, *glance)),
        next_section(data, study, overrides),
        leaderboard_section(data, choice),
        ensemble_section(data),
        front_section(data) or progress_section(data),
        failures,
        params,
        path_section(data),
        parallel_section(data),
        curves_section(data),
        timeline_section(data),
        cost,
        config_section(data.record.settings, data.record.changed, data.record.edits),
    )
    return [section for section in made if section is not None]


def write_report(
    data: StudyData,
    directory: Path,
    choice: str | None = None,
    refresh_seconds: float = DEFAULT_REFRESH_SECONDS,
) -> Path:
    """Write `report.html` of a study at its place, and return its path. Raises StorageError.

    While a sweep runs, the page loads itself again each `refresh_seconds`.
    """
    folder = os.path.relpath(directory.parent)
    folder = str(directory.parent) if folder.startswith("..") else folder
    study = StudyConfig(name=directory.name, dir=folder)
    path = StudyFiles(directory).report
    sections = report_sections(data, study, choice)
    write_atomically(path, report_page(data, sections, directory, refresh_seconds))
    return path


def report_page(
    data: StudyData,
    sections: Sequence[ReportSection],
    directory: Path | None = None,
    refresh_seconds: float = DEFAULT_REFRESH_SECONDS,
) -> str:
    """Return the text of the page on a study. `directory`: where its logs and checkpoints are."""
    columns, rows = trial_table(data)
    plain = plain_table(columns, rows) | {"details": trial_details(data, directory)}
    static = [[cell_text(cell) for cell in row] for row in rows[:N_STATIC]]
    refresh = refresh_seconds if data.is_running else None
    return render_page(data.record.name, sections, plain, static, refresh_seconds=refresh)


def render_page(
    name: str,
    sections: Sequence[ReportSection],
    plain: Mapping[str, Any] | None = None,
    static_rows: Sequence[Sequence[str]] = (),
    *,
    refresh_seconds: float | None = None,
) -> str:
    """Return the text of a page. `plain`: columns, rows and details of all trials, if a section has
    their table; `static_rows` are those that are shown without the script. `refresh_seconds`: after
    how long it loads itself again; None: it stays."""
    now = time.time()
    plain = plain or {
        "columns": [],
        "rows": [],
        "words": {},
        "details": {"devices": [], "attempts": {}, "trials": {}, "load": ""},
    }
    page = page_template("page.html.jinja").render(
        name=name,
        has_anchors=True,
        made=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)),
        made_seconds=round(now),
        refresh_seconds=refresh_seconds and round(refresh_seconds, 1),
        sections=sections,
        safe=Markup,
        style=Markup(_style()),
        script=Markup("".join(_script(name) for name in SCRIPTS)),
        columns=plain["columns"],
        static_rows=static_rows,
        n_rows=len(plain["rows"]),
        trials=Markup(_script_json(plain)),
    )
    return printable_text(page)


def page_file(name: str) -> str:
    """Return the text of a file that pages are made from."""
    return files("automl.report_page").joinpath(name).read_text("utf-8")


def _style() -> str:
    """Return the style sheet without comments, and without spaces that mean nothing."""
    css = re.sub(r"/\*.*?\*/", "", page_file("page.css"), flags=re.DOTALL)
    return re.sub(r"\s*([{};])\s*", r"\1", css).strip()


def _script(name: str) -> str:
    """Return a script without its indents and its lines of comment, which a page need not carry."""
    lines = (line.strip() for line in page_file(f"scripts/{name}").splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith(("//", "/**")))


def page_template(name: str) -> Template:
    """Return a template that escapes all text that is put into it."""
    loader = FunctionLoader(page_file)
    return Environment(autoescape=True, undefined=StrictUndefined, loader=loader).get_template(name)


def _script_json(plain: object) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
