"""Makes the parts of a report that stand inside another page, such as a notebook.

A fragment brings its style, which holds for nothing outside of it, and has no script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PosixPath

from markupsafe import Markup

from automl.errors import ConfigError
from automl.record.texts import printable_text
from automl.report_page.front_section import front_section
from automl.report_page.page import page_file, page_template
from automl.report_page.parallel_section import parallel_section
from automl.report_page.param_sections import params_section, path_section
from automl.report_page.search_sections import curves_section, progress_section
from automl.report_page.section import ReportSection
from automl.report_page.study_data import StudyData
from automl.report_page.verdict_section import verdict_section
from automl.report_page.work_sections import timeline_section

SECTION_BY_PICTURE: Mapping[str, Callable[[StudyData], ReportSection | None]] = {
    "progress": progress_section,
    "importances": params_section,
    "path": path_section,
    "parallel": parallel_section,
    "curves": curves_section,
    "timeline": timeline_section,
    "front": front_section,
}
"""The sections that `study_picture` makes, by the name of their picture."""
FRAME_HEIGHT = "min(80vh, 900px)"
_OWN_STYLE = """& { margin: 0; padding: 4px 14px; } section { border: 0; padding: 6px 0; }
section tr, section th, section td { background: var(--back) !important; color: var(--text);
  max-width: none; text-align: left; } section .n { text-align: right; }
.charts > svg:not(.wide, .small) { flex: 0 1 560px; }"""
"""What differs from the page, and what a notebook's own style for tables would change."""


@dataclass(frozen=True)
class StudyPicture:
    """A part of a report; a notebook shows it as the value of a cell."""

    text: str
    """What the picture means."""
    html: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


class ReportPath(PosixPath):
    """The path of a study's page; a notebook shows the page as the value of a cell."""

    def _repr_html_(self) -> str | None:
        if not self.is_file():  # such as its folder, by `parent`
            return None
        return page_frame(self.read_text("utf-8"), self.parent.name)


def page_frame(page: str, name: str) -> str:
    """Return a frame with a whole page in it, which reaches nothing of the page around it."""
    return page_template("frame.html.jinja").render(page=page, name=name, css_height=FRAME_HEIGHT)


def study_picture(data: StudyData, name: str) -> StudyPicture:
    """Return the picture `name` of a study. Raises ConfigError for a name that there is not."""
    if name not in SECTION_BY_PICTURE:
        known = ", ".join(SECTION_BY_PICTURE)
        raise ConfigError(f"study.plot({name!r}): there is no such picture; there are: {known}.")
    section = SECTION_BY_PICTURE[name](data)
    if section is None:
        missing = f"There is nothing to draw yet: {_trials_text(data)}."
        section = ReportSection(name, name.capitalize(), (missing,))
    if section.has_trials:  # the table, and what the page's script does with it
        section = replace(section, sentences=section.sentences[:1], has_trials=False)
    return StudyPicture(" ".join(section.sentences), section_fragment([section]))


def summary_fragment(data: StudyData) -> str:
    """Return the HTML of a study's verdict, its best trials, and the best value so far."""
    sections = [replace(verdict_section(data), title=data.record.name)]
    if (progress := progress_section(data)) is not None:
        sections.append(replace(progress, charts=progress.charts[:1], tables=()))
    return section_fragment(sections)


def section_fragment(sections: Sequence[ReportSection]) -> str:
    """Return the HTML of these sections in an element that can stand in any page."""
    css = page_file("page.css")
    style = css.replace(":root", "&").replace("\nbody {", "\n& {") + _theme_rules(css)
    fragment = page_template("fragment.html.jinja").render(
        sections=sections,
        safe=Markup,
        has_anchors=False,
        style=Markup(f".automl-report {{ {style} {_OWN_STYLE} }}"),
    )
    return printable_text(fragment)


def _theme_rules(css: str) -> str:
    """Return the rules by which a fragment follows the theme of JupyterLab or VS Code; elsewhere
    the theme of the reader's system counts."""
    light, dark = re.findall(r":root \{([^}]*)\}", css)
    return (
        f'[data-jp-theme-light="true"] &, .vscode-light & {{ {light} color-scheme: light; }}\n'
        f'[data-jp-theme-light="false"] &, .vscode-dark & {{ {dark} color-scheme: dark; }}\n'
    )


def _trials_text(data: StudyData) -> str:
    counts = ", ".join(f"{n} {state.value}" for state, n in data.record.counts().items() if n)
    return counts or "no trial has begun"
