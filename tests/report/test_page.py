"""The page of a report: what it says, and that it is safe to open anywhere."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from automl.report_page.fragment import summary_fragment
from automl.report_page.study_data import read_study_data
from automl.running.features.report_page import make_report
from automl.trial import (
    EnsembleBuilt,
    Event,
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    Params,
    PrunedOutcome,
    SweepEnded,
    TrialStarted,
    TrialsWaited,
)
from tests.report.studies import BEGUN, SETTINGS, searched, write_study

HOSTILE = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>学习率"


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def has(self, tag: str, **wanted: str) -> bool:
        return any(t == tag and wanted.items() <= a.items() for t, a in self.elements)


def page_of(directory: Path) -> Page:
    return Page(make_report(directory).read_text("utf-8"))


def repeated(values: tuple[float, ...]) -> list[Event]:
    """Return the events of a trial with repeats of these values."""
    reports = [
        MetricsReported(0, BEGUN, step, {"val_loss": 1.0 - step / 10, "val_loss_se": 0.1})
        for step in range(4)
    ]
    mean = sum(values) / len(values)
    return [
        TrialStarted(0, BEGUN, {"lr": 0.1}, "cpu"),
        *reports,
        FinishedOutcome(0, BEGUN, mean, values),
        SweepEnded(BEGUN, True, {}, 0, mean, baseline={"constant": 2.0}),
    ]


def test_a_page_shows_the_spread_over_repeats_and_the_gain_over_the_baseline(
    tmp_path: Path,
) -> None:
    page = page_of(write_study(tmp_path / "any", repeated((0.4, 0.5, 0.6))))
    assert "val_loss 0.5 ± 0.058 (less is better)" in page.text
    assert "over 3 trainings, whose values are from 0.4 to 0.6" in page.text
    assert "constant, which says the same of all of them, has 2" in page.text
    assert "75% better" in page.text
    assert page.has("path", **{"class": "band"})
    assert "A trial's value is its best report" not in page.text
    assert "1 of the 1 finished ones was made of several trainings or models" in page.text


def test_a_page_says_that_repeats_are_equal(tmp_path: Path) -> None:
    page = page_of(write_study(tmp_path / "any", repeated((0.5, 0.5))))
    assert "Its 2 trainings have the same value, as if it did not depend on the seed" in page.text


def finished(values: Sequence[float], **values_by_name: Sequence[float]) -> list[Event]:
    """Return the events of one finished trial for each value."""
    events: list[Event] = []
    for number, value in enumerate(values):
        named = {name: of_trials[number] for name, of_trials in values_by_name.items()}
        events += [
            TrialStarted(number, BEGUN + number, {"lr": 0.1 * number}, "cpu"),
            FinishedOutcome(number, BEGUN + number + 1, value, values=named),
        ]
    return events


def lead(directory: Path) -> str:
    """Return the first sentence of the study's page."""
    text = make_report(directory).read_text("utf-8")
    return text.split('class="lead">', 1)[1].split("</p>", 1)[0].replace("&#39;", "'")


def test_what_is_done_is_no_next_step(tmp_path: Path) -> None:
    settings = {"study.metric": "val_loss", "objective.kind": "builtin"}
    study = write_study(tmp_path / "wine", finished([0.8]), settings)
    assert {"automl refit", "automl export"} <= _next_commands(study)
    (study / "refit.pt").touch()
    assert {"automl refit", "automl export"} & _next_commands(study) == {"automl export"}
    (study / "release.json").write_text('{"export": {}}')
    assert not {"automl refit", "automl export"} & _next_commands(study)
    (study / "release.json").write_text('{"evaluate": {}}')  # it stopped before
    (study / "exports").mkdir()
    assert not {"automl refit", "automl export"} & _next_commands(study)
    assert "automl evaluate" in _next_commands(study)


def _next_commands(study: Path) -> set[str]:
    """Return the first words of the commands that the page names at its end."""
    text = page_of(study).text
    return {f"automl {word}" for word in re.findall(r"python -m automl (\w+)", text)}


def test_the_verdict_begins_with_the_model_that_a_table_gives(tmp_path: Path) -> None:
    built = EnsembleBuilt(BEGUN + 9, 4898, {1: 0.6, 0: 0.4}, {"loss": 0.7508, "error": 0.3})
    study = write_study(tmp_path / "wine", [*finished([0.81, 0.8003]), built])
    assert lead(study) == (
        "The study gives its ensemble of 2 models: loss 0.7508 on 4,898 rows that none of its "
        "models trained on."
    )
    assert "The best trial is 1: val_loss 0.8003 (less is better)" in page_of(study).text
    (study / "refit.pt").touch()
    assert lead(study).startswith("The study gives its refit, trained again on more rows: the ens")


def test_the_verdict_of_several_metrics_names_the_best_by_each(tmp_path: Path) -> None:
    settings = {
        "study.metric": "val_loss, seconds",
        "study.direction": "minimize, minimize",
        "study.n_trials": "4",
    }
    losses, seconds = [0.2802, 0.3027, 0.5, 0.6], [9.0, 3.0, 1.0, 2.0]
    events = finished(losses, val_loss=losses, seconds=seconds)
    study = write_study(tmp_path / "several", events, settings)
    assert lead(study) == (
        "The front has 3 of 4 finished trials; trial 1, its knee, is a compromise: val_loss "
        "0.3027, seconds 3. The best by each metric: trial 0 has val_loss 0.2802, trial 2 has "
        "seconds 1."
    )


def test_the_verdict_of_an_interrupted_study_says_where_it_stands(tmp_path: Path) -> None:
    settings = {**SETTINGS, "study.n_trials": "6"}
    study = write_study(tmp_path / "studies" / "any", finished([0.5]), settings)
    text = page_of(study).text
    assert "It was stopped at 1 of 6 trials; go on with: python -m automl resume" in text
    assert "Fewer than 20 trials have values that compare: too few to say" in text


def test_the_verdict_of_pruned_trials_alone_says_what_they_had(tmp_path: Path) -> None:
    events: list[Event] = []
    for number, value in enumerate([0.9, 0.7]):
        events += [
            TrialStarted(number, BEGUN, {"lr": 0.1}, "cpu"),
            MetricsReported(number, BEGUN + 1, 3, {"val_loss": value}),
            PrunedOutcome(number, BEGUN + 2, 3, value),
        ]
    assert lead(write_study(tmp_path / "any", events)) == (
        "No trial finished; the best of 2 pruned ones is trial 1: val_loss 0.7 (less is better), "
        "its best report until it was stopped at step 3, with lr 0.1."
    )


def test_a_fragment_follows_the_theme_of_the_notebook(tmp_path: Path) -> None:
    data = read_study_data(write_study(tmp_path / "any", searched(8)))
    style = summary_fragment(data).split("</style>")[0]
    dark = style.split('[data-jp-theme-light="false"] &, .vscode-dark & {')[1].split("}")[0]
    assert "--back: #14181f" in dark
    assert "color-scheme: dark" in dark


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (0.5, "A trial's value is its best report."),
        (0.502, "A trial's value is its best report, within 1%."),
        (0.6, "The value of 1 of the 1 finished ones was returned or told, and is more than 1%"),
        (0.503, "was made of several trainings or models at the trial's end, and is none of their"),
    ],
)
def test_a_value_beside_the_best_report_is_told_by_how_much(
    tmp_path: Path, value: float, sentence: str
) -> None:
    events = [
        TrialStarted(0, BEGUN + 1, {"lr": 0.1}, "cpu"),
        MetricsReported(0, BEGUN + 2, 0, {"val_loss": 0.7}),
        MetricsReported(0, BEGUN + 3, 1, {"val_loss": 0.5}),
        FinishedOutcome(
            *(0, BEGUN + 4, value, (0.5, 0.506) if value == 0.503 else ()),
            reported={"val_loss": 0.5} if value > 0.55 else {},
        ),
    ]
    assert sentence in page_of(write_study(tmp_path / "any", events)).text


def test_a_page_says_what_is_best_what_matters_and_whether_more_would_help(tmp_path: Path) -> None:
    page = page_of(write_study(tmp_path / "any", searched(60)))
    assert "The best trial is" in page.text
    assert "lr matters most" in page.text
    assert "A trial's value is its best report." in page.text
    assert "As many trials again are expected to improve it by" in page.text
    assert "the rank correlation of the order at step 2 with the order at the end is" in page.text
    headings = [a["id"] for tag, a in page.elements if tag == "section"]
    assert headings == [
        *("verdict", "next", "progress", "params", "path", "trials", "curves", "timeline"),
        *("cost", "config"),
    ]


def test_a_page_needs_no_other_file_and_no_network(tmp_path: Path) -> None:
    page = page_of(write_study(tmp_path / "any", searched(30)))
    for _, attributes in page.elements:
        for name in ("src", "href", "action", "data", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert "default-src 'none'" in str(page.elements)


def test_every_picture_has_a_text_for_those_who_do_not_see_it(tmp_path: Path) -> None:
    page = page_of(write_study(tmp_path / "any", searched(30)))
    pictures = [a for tag, a in page.elements if tag == "svg" and a["class"] != "clip"]
    assert len(pictures) >= 6
    assert all(a["role"] == "img" and a["aria-label"] for a in pictures)


def test_names_and_values_cannot_become_part_of_the_page(tmp_path: Path) -> None:
    events = []
    for number in range(12):
        params: Params = {HOSTILE: number / 10, "kind": HOSTILE if number % 2 else "plain"}
        events += [
            TrialStarted(number, BEGUN + number, params, HOSTILE),
            MetricsReported(number, BEGUN + number, 0, {HOSTILE: 1.0 + number}),
            FinishedOutcome(number, BEGUN + number + 1, 1.0 + number),
        ]
    failed = [
        TrialStarted(12, BEGUN + 20, {}, HOSTILE),
        FailedOutcome(12, BEGUN + 21, f"ValueError: {HOSTILE}"),
    ]
    settings = {"study.metric": HOSTILE, "study.direction": "minimize"}
    page = page_of(write_study(tmp_path / "any", [*events, *failed], settings))
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert not page.has("img")
    assert not any(name.startswith("on") for _, a in page.elements for name in a)
    assert len(json.loads(page.scripts[0])["rows"]) == 13
    assert "学习率" in page.text


def test_a_study_without_a_result_says_so_and_why(tmp_path: Path) -> None:
    events = [
        TrialStarted(0, BEGUN, {"lr": 0.1}, "cpu"),
        FailedOutcome(0, BEGUN + 1, "ValueError: lr is too large"),
    ]
    page = page_of(write_study(tmp_path / "any", events))
    assert "No result yet: no trial has ended with a value" in page.text
    assert "Trials: 1 failed." in page.text
    assert "The only trial failed with ValueError: lr is too large (in trial 0)." in page.text
    assert "logs/trial-00000.log" in page.text


def test_a_study_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    page = page_of(write_study(tmp_path / "any", []))
    assert "No result yet" in page.text
    assert "Trials: none yet." in page.text


def test_no_cut_value_is_drawn_as_a_value(tmp_path: Path) -> None:
    """The winner's curve is whole, lines of others leave the frame, and dots become triangles."""
    events: list[Event] = []
    for number in range(40):
        first = -1.0 if number else 400.0  # the winner begins far beyond all others
        worst = 50.0 if number == 7 else -1.0
        events += [
            TrialStarted(number, BEGUN + number, {"lr": 0.01 + 0.001 * number}, "cpu"),
            MetricsReported(number, BEGUN + number, 0, {"val_loss": first}),
            MetricsReported(number, BEGUN + number, 1, {"val_loss": worst - 0.01 * number}),
            FinishedOutcome(number, BEGUN + number + 1, -9.0 if number == 0 else worst),
        ]
    text = make_report(write_study(tmp_path / "any", events)).read_text("utf-8")
    curves = text.split('id="curves"')[1].split("</section>")[0]
    winner = re.search(r'<path class="curve winner" d="M[\d.]+ ([\d.]+)L', curves)
    assert winner is not None
    assert 10 < float(winner[1]) < 30, "400 lies just below the upper edge, not on it"
    progress = text.split('id="progress"')[1].split("</section>")[0]
    assert progress.count('class="beyond"') == 2, "one triangle in each picture"
    assert "1 trial lies beyond the picture: a triangle at its edge" in progress


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12, sys.float_info.max / 20, 5e-324])
def test_values_of_every_size_are_shown(tmp_path: Path, size: float) -> None:
    events = []
    for number in range(20):
        value = size * (1 + number)
        events += [
            TrialStarted(number, BEGUN, {"lr": 0.001 * (1 + number)}, "cpu"),
            MetricsReported(number, BEGUN + 1, 0, {"val_loss": value}),
            MetricsReported(number, BEGUN + 2, 1, {"val_loss": float("nan")}),
            MetricsReported(number, BEGUN + 3, 2, {"val_loss": float("inf")}),
            FinishedOutcome(number, BEGUN + 4, value),
        ]
    page = page_of(write_study(tmp_path / "any", events))
    assert f"val_loss {size:.4g}" in page.text.replace(",", "")


def test_a_range_whose_best_value_lies_at_its_edge_is_named_with_the_wider_one(
    tmp_path: Path,
) -> None:
    page = page_of(
        write_study(tmp_path / "any", searched(40, lambda p: 1.1 - 5 * float(str(p["lr"]))))
    )
    assert "The best lr lies at the edge of its range: space.lr.high=1 would look" in page.text
    assert "The best lr lies at the upper end of its range (0.1)" in page.text
    assert re.search(r"python -m automl edit any \S+ space\.lr\.high=1 n_trials=40", page.text)


def test_a_study_called_from_python_goes_on_by_the_same_call(tmp_path: Path) -> None:
    settings = {**SETTINGS, "objective.kind": "called"}
    trials = searched(40, lambda p: 1.1 - 5 * float(str(p["lr"])))
    page = page_of(write_study(tmp_path / "any", trials, settings))
    assert "try morethe same call with name='any', n_trials=40" in page.text
    assert "go on with: the same call with name='any'" in page.text
    assert "resume any" not in page.text
    assert "edit any" not in page.text


def test_a_page_of_a_stranger_runs_nothing_of_his(tmp_path: Path) -> None:
    study = write_study(
        tmp_path / "any", searched(10), {**SETTINGS, "objective.target": "evil:train"}
    )
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    (study / "config.yaml").write_text("objective: {target: 'evil:train'}\n")
    assert "The best trial is" in page_of(study).text


def test_a_page_says_for_what_trials_waited(tmp_path: Path) -> None:
    waits = [
        TrialsWaited(BEGUN + 10.0 * n, BEGUN + 10.0 * n + 4, f"9.0 GiB asked, {n}.5 GiB room")
        for n in range(3)
    ]
    page = page_of(write_study(tmp_path / "any", [*searched(10), *waits]))
    assert "longest (12 s): 9.0 GiB asked, 0.5 GiB room" in page.text
    assert page.has("svg", **{"aria-label": "waits for memory or devices"})


def test_a_page_of_many_trials_says_that_it_draws_some(tmp_path: Path) -> None:
    page = page_of(write_study(tmp_path / "any", searched(801)))
    assert "267 of 801 are drawn, evenly over the ranking." in page.text
    assert "The reports of the best 300 of 801 trials" in page.text
    lines = [
        a for tag, a in page.elements if tag == "path" and (a["class"] or "").startswith("line ")
    ]
    assert len(lines) == 267


def test_a_page_of_300_trials_is_small(tmp_path: Path) -> None:
    study = write_study(tmp_path / "any", searched(300))
    assert make_report(study).stat().st_size < 200_000


def test_no_name_turns_the_page_around(tmp_path: Path) -> None:
    started = [
        TrialStarted(n, BEGUN + n, {"lr\u202e": 0.1 * n, "kind": "a\u200fb"}, "cpu")
        for n in range(3)
    ]
    ended = [FinishedOutcome(n, BEGUN + 9 + n, 0.1 * n) for n in range(3)]
    study = write_study(tmp_path / "studies" / "a", [*started, *ended])
    page = make_report(study).read_text("utf-8")
    shown = page + summary_fragment(read_study_data(study))
    assert {*"\u202e\u200f"}.isdisjoint(shown)
    assert "lr�" in page
