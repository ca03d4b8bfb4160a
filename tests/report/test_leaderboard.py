"""The leaderboard of a study of a table, and what its ensemble goes by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from automl.record.leaderboard import leaderboard, model_file_sizes
from automl.record.studies import read_study
from automl.record.study_files import StudyFiles
from automl.running.features.report_page import make_report
from automl.trial import (
    CalibrationPoint,
    ColumnImportance,
    EnsembleBuilt,
    EnsembleFindings,
    Event,
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    ModelsEvaluated,
    RowsKind,
    ScoreInterval,
    SweepEnded,
    TrialStarted,
)
from tests.report.studies import BEGUN, write_study
from tests.report.test_page import HOSTILE, Page, page_of

SETTINGS = {
    "study.metric": "val_loss",
    "study.direction": "minimize",
    "objective.kind": "builtin",
    "data.target": "kind",
    "model": "auto",
}
STORED = Path("tests/stored_studies/studies")
FINDINGS = EnsembleFindings(
    n_columns=2,
    n_rows=90,
    loss=0.4,
    importances=(ColumnImportance(HOSTILE, 0.3, 0.02), ColumnImportance("b", -0.01, 0.01)),
    classes=("no", HOSTILE),
    confusion=((40, 5), (10, 35)),
    calibration=(CalibrationPoint(0.2, 0.1, 50), CalibrationPoint(0.8, 0.9, 40)),
    pairs=(),
)


def joined(findings: EnsembleFindings | None = FINDINGS) -> EnsembleBuilt:
    return EnsembleBuilt(
        BEGUN + 90,
        90,
        members={1: 0.75, 0: 0.25},
        scores={"loss": 0.35, "error": 0.1, "auc": 0.97},
        rows_per_second={0: 1000.0, 1: 250.0},
        intervals={
            "ensemble": {"loss": ScoreInterval(0.35, 0.3, 0.4)},
            "trial-00001": {"loss": ScoreInterval(0.4, 0.33, 0.47)},
            "trial-00000": {"loss": ScoreInterval(0.45, 0.4, 0.6)},  # of its mean prediction
        },
        findings=findings,
    )


def of_a_table(*more: Event) -> list[Event]:
    """Return the events of two finished trials, and of one that failed."""
    events: list[Event] = []
    for number, loss in enumerate([0.5, 0.4]):
        params = {"family": f"family {number}"}
        metrics = {"val_loss": loss, "val_error": loss / 2}
        events += [
            TrialStarted(number, BEGUN + 10 * number, params, "cpu"),
            MetricsReported(number, BEGUN + 10 * number + 1, 0, metrics),
            FinishedOutcome(number, BEGUN + 10 * number + 4, loss),
        ]
    events += [
        TrialStarted(2, BEGUN + 30, {"family": "family 0"}, "cpu"),
        FailedOutcome(2, BEGUN + 31, "ValueError: no"),
    ]
    return [*events, *more]


def table_of(page: Page) -> list[dict[str, Any]]:
    plain = json.loads(page.scripts[0])
    assert plain["words"] == {}, "no text is repeated in these small tables"
    return [dict(zip(plain["columns"], row, strict=True)) for row in plain["rows"]]


def test_unseen_rows_and_intervals_are_scored_by_the_metric_of_the_study(tmp_path: Path) -> None:
    scores = {"loss": ScoreInterval(0.38, 0.3, 0.5), "f1": ScoreInterval(0.7, 0.6, 0.8)}
    scored = ModelsEvaluated(
        BEGUN + 99, RowsKind.KEPT, 40, "0", (), {"ensemble": scores}, ensembled=True
    )
    own = {"ensemble": {"f1": ScoreInterval(0.9, 0.85, 0.95)}}
    made = replace(joined(), scores={"loss": 0.35, "f1": 0.9}, intervals=own)
    settings = {**SETTINGS, "study.metric": "val_f1", "study.direction": "maximize"}
    study = write_study(tmp_path / "any", of_a_table(made, scored), settings)
    rows = {row["model"]: row for row in table_of(page_of(study))}
    assert rows["ensemble"]["val_f1"] == [0.9, "(0.85 to 0.95)"]
    assert rows["ensemble"]["f1, unseen rows"] == [0.7, "(0.6 to 0.8)"]


def test_all_models_are_in_one_table_the_baseline_at_its_end(tmp_path: Path) -> None:
    known = {"loss": 0.7, "error": 0.45, "brier": 0.3}
    ended = SweepEnded(
        BEGUN + 95, True, {}, 1, 0.4, baseline={"majority": 0.7}, baseline_scores=known
    )
    scores = {name: {"loss": ScoreInterval(0.38, 0.3, 0.5)} for name in ("ensemble", "majority")}
    scored = ModelsEvaluated(BEGUN + 99, RowsKind.KEPT, 40, "0", (), scores, ensembled=True)
    study = write_study(tmp_path / "any", of_a_table(joined(), ended, scored), SETTINGS)
    (study / "ensemble.pt").write_bytes(bytes(3000))
    (study / "refit.pt").write_bytes(bytes(2000))
    rows = table_of(page_of(study))
    assert [row["model"] for row in rows] == ["refit", "ensemble", 1, 0, 2, "majority"]
    refit, ensemble, first, second, failed, baseline = rows
    assert refit["file kB"] == 2
    assert ensemble["val_loss"] == [0.35, "(0.3 to 0.4)"]
    assert ensemble["val_error"] == 0.1
    assert ensemble["val_auc"] == 0.97
    assert ensemble["loss, unseen rows"] == [0.38, "(0.3 to 0.5)"]
    assert ensemble["fit seconds"] == 8
    assert ensemble["s per 1,000 rows"] == 5, "each member is asked: 1 s and 4 s"
    assert first == {
        **dict.fromkeys(first),
        "model": 1,
        "family": "family 1",
        "val_loss": [0.4, "(0.33 to 0.47)"],
        "val_error": 0.2,
        "fit seconds": 4,
        "s per 1,000 rows": 4,
        "weight": 0.75,
        "state": "finished",
    }
    assert second["val_loss"] == 0.5, "the interval is that of another number"
    assert (failed["val_loss"], failed["state"]) == (None, "failed")
    assert (baseline["val_loss"], baseline["val_error"]) == (0.7, 0.45)
    assert baseline["weight"] is None


def test_the_ensemble_shows_what_it_goes_by_whatever_its_columns_are_called(
    tmp_path: Path,
) -> None:
    page = page_of(write_study(tmp_path / "any", of_a_table(joined()), SETTINGS))
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert not page.has("img")
    labels = [a["aria-label"] for tag, a in page.elements if tag == "svg" and "role" in a]
    assert {"columns that matter", "calibration"} < {*labels}
    assert "what rows of each class are taken for" in labels
    assert f"{HOSTILE[:39]}… matters most of 2 columns: shuffled" in page.text
    assert "10 of its 45 rows" in page.text
    assert "78%" in page.text


def test_predicted_values_are_drawn_against_true_ones(tmp_path: Path) -> None:
    found = FINDINGS._replace(
        importances=(), classes=(), confusion=(), calibration=(), pairs=((1.0, 1.5), (2.0, 1.9))
    )
    page = page_of(write_study(tmp_path / "any", of_a_table(joined(found)), SETTINGS))
    assert page.has("svg", **{"aria-label": "predicted values against true ones"})
    assert "True and predicted values of 2 of 90 rows" in page.text


def test_a_stored_study_of_an_earlier_version_has_its_leaderboard() -> None:
    study = STORED / "any_family"
    record = read_study(study)
    rows = leaderboard(record, model_file_sizes(StudyFiles(study), record.trials))
    assert [row.name for row in rows[:3]] == ["refit", "ensemble", "trial-00000"]
    assert rows[-1].is_baseline
    assert all(row.size_bytes for row in rows[:-1])
    assert rows[2].weight == 1.0


def test_a_study_of_no_table_has_none(tmp_path: Path) -> None:
    events = of_a_table()
    text = make_report(write_study(tmp_path / "any", events, {**SETTINGS, "data.target": ""}))
    assert 'id="leaderboard"' not in text.read_text("utf-8")
