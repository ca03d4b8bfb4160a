"""What the comparison of studies says, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from automl.report_page.comparison import (
    comparison_page,
    comparison_rows,
    setting_rows,
    split_comparable,
)
from automl.report_page.study_data import StudyData, read_study_data
from automl.trial import Event, FinishedOutcome, ModelsEvaluated, RowsKind, ScoreInterval
from tests.report.studies import BEGUN, SETTINGS, searched, write_study
from tests.report.test_page import Page


def study(
    folder: Path, name: str, n_trials: int = 20, events: tuple[Event, ...] = (), **settings: str
) -> StudyData:
    own = {**SETTINGS, **{key.replace("_of_", "."): value for key, value in settings.items()}}
    return read_study_data(write_study(folder / name, [*searched(n_trials), *events], own))


def judged_by(digest: str, data: StudyData) -> StudyData:
    """The study, whose trials are judged by the rows of this digest."""
    sweep = data.record.sweeps[-1]
    begun = replace(sweep, start=replace(sweep.start, judged_rows=digest))
    return replace(data, record=replace(data.record, sweeps=(begun,)))


def scored(low: float, high: float) -> tuple[Event, ...]:
    """An evaluation of the best model on rows that no sweep saw."""
    scores = {"trial-00000": {"loss": ScoreInterval((low + high) / 2, low, high)}}
    return (ModelsEvaluated(BEGUN + 1e4, RowsKind.GIVEN, 100, "rows", (0,), scores),)


def test_the_best_study_is_named_and_only_what_differs_is_shown(tmp_path: Path) -> None:
    studies = [
        study(tmp_path, "short", 8, training_of_epochs="5"),
        study(tmp_path, "long", 60, training_of_epochs="20"),
    ]
    page = Page(comparison_page(studies))
    assert "long has the best val_loss" in page.text
    assert setting_rows(studies) == [("training.epochs", "5", "20")]
    assert "Whether the difference is more than chance cannot be said" in page.text


def test_a_best_value_of_several_trainings_has_its_standard_error(tmp_path: Path) -> None:
    events = [
        replace(event, part_values=(event.value - 0.1, event.value + 0.1))
        if isinstance(event, FinishedOutcome)
        else event
        for event in searched(6)
    ]
    repeated = read_study_data(write_study(tmp_path / "repeated", events, SETTINGS))
    _, rows = comparison_rows([repeated, study(tmp_path, "once", 6)])
    shown = {name: value for name, value, *_ in rows}
    assert shown["repeated"] == f"{shown['once']} ± 0.1"


def test_scores_on_the_same_unseen_rows_tell_whether_it_is_chance(tmp_path: Path) -> None:
    apart = [study(tmp_path, "a", 9, scored(0.1, 0.2)), study(tmp_path, "b", 9, scored(0.3, 0.4))]
    assert "more than chance" in Page(comparison_page(apart)).text
    near = [apart[0], study(tmp_path, "c", 9, scored(0.15, 0.4))]
    assert "may be chance" in Page(comparison_page(near)).text


def test_studies_that_do_not_compare_are_left_out_and_said(tmp_path: Path) -> None:
    other = {"study.metric": "val_auc", "study.direction": "maximize"}
    turned = write_study(tmp_path / "turned", searched(9, metric="val_auc"), other)
    studies = [
        study(tmp_path, "plain"),
        read_study_data(turned),
        read_study_data(write_study(tmp_path / "empty", [])),
    ]
    kept, left_out = split_comparable(studies)
    assert [data.record.name for data in kept] == ["plain"]
    text = Page(comparison_page(studies)).text
    assert all(line in text for line in left_out)
    assert "its metric is val_auc (maximize)" in text
    assert "empty is left out: no trial of it has a value." in text


def test_without_any_result_the_page_says_so(tmp_path: Path) -> None:
    empty = [read_study_data(write_study(tmp_path / name, [])) for name in ("a", "b")]
    assert "No study has a trial with a value yet" in Page(comparison_page(empty)).text


def test_nothing_is_declared_best_of_studies_of_different_rows(tmp_path: Path) -> None:
    studies = [
        study(tmp_path, "small", 9, data_of_path="a.csv"),
        study(tmp_path, "large", 9, data_of_path="b.csv"),
    ]
    text = Page(comparison_page(studies)).text
    assert "by different rows (data.path), so their values do not compare, and none is the" in text
    assert "has the best" not in text
    same = [judged_by("ab", data) for data in studies]
    assert "small has the best val_loss" in Page(comparison_page(same)).text, "a copy of a file"
    other = [judged_by("ab", studies[0]), judged_by("cd", studies[1])]
    assert "by different rows" in Page(comparison_page(other)).text
    scores = [
        study(tmp_path, "c", 9, scored(0.1, 0.2), data_of_path="a.csv"),
        study(tmp_path, "d", 9, scored(0.3, 0.4), data_of_path="b.csv"),
    ]
    assert "more than chance" in Page(comparison_page(scores)).text, "by the same unseen rows"


def test_each_line_has_the_name_and_the_colour_of_its_study(tmp_path: Path) -> None:
    page = Page(comparison_page([study(tmp_path, "a", 9), study(tmp_path, "b", 12)]))
    for colour in ("s0", "s1"):
        assert page.has("span", **{"class": f"key line {colour}"})
        assert page.has("path", **{"class": f"study {colour}"})
