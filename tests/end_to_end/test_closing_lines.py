"""What a sweep says at its end, line by line in its order, and what it answers by `--json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.record.studies import read_study
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Done, objective_words
from tests.end_to_end.tables import AUTO, wine_like

NAME = "study.name=a"
INLINE = (
    "devices.only=cpu",
    "pruner=none",
    "execution=inline",
    "admission.max_concurrent_trials=1",
)
FEW = (
    *(NAME, *INLINE, "study.n_trials=3", "training.epochs=2"),
    *("data.n_train=200", "data.n_validation=100"),
)
ANSWER = (
    *("study", "directory", "ended", "reason", "counts", "metric", "best", "ensemble"),
    "report",
)
"""The keys of the answer, in their order."""
VARIES = re.compile(r": done in | s so far|^delivering |^#/# trials|^\w+: #% | hears? of ")
"""Lines that come or not as time goes by."""


def masked(line: str) -> str:
    """The line without what differs from run to run; of a row of a table only its first words."""
    text = re.sub(r"(?<!\w)-?\d+(,\d{3})*(\.\d+)?(e[-+]?\d+)?(:\d\d)*", "#", " ".join(line.split()))
    text = re.sub(r"^ensemble of .*?: ", "ensemble of …: ", text)
    text = re.sub(r"# (s|kB|MB)\b", "#", text)
    row = re.match(r"#( validation| test)?(?= )", text)
    return row[0] if row and not VARIES.search(text) else text


def end_of(text: str) -> list[str]:
    """The lines after the greeting, those that come or not left out; equal rows once."""
    lines = [masked(line) for line in text.splitlines()]
    first = max(n for n, line in enumerate(lines) if line.startswith("study a: ")) + 1
    kept = [line for line in lines[first:] if not VARIES.search(line)]
    return [line for n, line in enumerate(kept) if n == 0 or line != kept[n - 1]]


def answer_of(done: Done) -> dict[str, object]:
    """The answer, whose keys have their order."""
    answer: dict[str, object] = json.loads(done.stdout)
    assert tuple(answer) == ANSWER
    return answer


def closing_events(folder: Path) -> Iterator[str]:
    """The kinds of the events from the end of the trials on."""
    lines = (folder / "studies" / "a" / "events.log").read_text().splitlines()
    kinds = [json.loads(line)["event"] for line in lines if line]
    yield from kinds[kinds.index("SweepEnded") :]


@pytest.mark.slow
def test_of_one_family_the_report_stands_first_and_the_address_last(
    folder: Path, call: Call
) -> None:
    done = call(*FEW, "--json")
    assert done.code == 0
    assert end_of(done.stderr) == [
        "report: studies/a/report.html",
        "best trials",
        "trial val_loss val_error val_auc depth width lr batch_size state",
        "#",
        "a: # finished in #",
        "best model: studies/a/best.pt",
        "see it all: python -m automl ui a",
    ]
    answer = answer_of(done)
    assert (answer["ensemble"], answer["report"]) == (None, "studies/a/report.html")
    assert list(closing_events(folder)) == ["SweepEnded", "ReportPage"]


@pytest.mark.slow
def test_over_any_family_ensemble_refit_and_scores_follow_in_this_order(
    folder: Path, call: Call
) -> None:
    wine_like().to_csv("wine.csv", index=False)
    done = call(NAME, *AUTO[:-1], "execution=inline", "--json")
    assert done.code == 0
    lines = end_of(done.stderr)
    assert lines[0] == "choosing an ensemble from # models"
    assert lines[lines.index("writing refit.pt") + 1 :] == [
        "refitted model: studies/a/refit.pt (# bytes)",
        "scoring ensemble and its refit on test rows",
        "report: studies/a/report.html",
        "best trials",
        "trial val_loss val_rmse val_r2 state params",
        "#",
        "a: # finished in #",
        "best model: studies/a/best.pt",
        "ensemble of …: loss # on # rows that none of them trained on; the best trial's loss is #",
        "ensemble: studies/a/ensemble.pt",
        "trained again on all # rows: studies/a/refit.pt",
        "on disk: # in studies/a; its largest model #",
        "rows model loss rmse r2",
        "# validation",
        "mean # # #",
        "# test",
        "its refit # # #",
        "mean # # #",
        "see it all: python -m automl ui a",
    ]
    answer, record = answer_of(done), read_study(folder / "studies" / "a")
    assert record.ensemble is not None
    assert answer["ensemble"]
    assert answer["report"] == "studies/a/report.html"
    assert list(closing_events(folder)) == ["SweepEnded", "Ensembled", "ReportPage"]


@pytest.mark.slow
def test_of_several_metrics_it_says_why_there_is_no_ensemble(folder: Path, call: Call) -> None:
    families = ("model=auto", "space=auto", "model.families=[mlp]")
    done = call(*FEW, *families, "study.metric=[val_loss,val_error]", "tracking.uri=none")
    assert (done.code, done.stderr) == (0, "")
    assert end_of(done.stdout) == [
        "scoring trial # on test rows",
        "report: studies/a/report.html",
        "best trials",
        "trial val_loss val_error state params",
        "#",
        "a: # finished in #",
        "best model: studies/a/best.pt",
        "no ensemble was made: it would be chosen by one metric alone",
        "on disk: # in studies/a; its largest model #",
        "rows model loss error auc",
        "# validation",
        "majority # # #",
        "# test",
        "majority # # #",
    ]


def test_an_interrupted_sweep_says_how_it_goes_on(folder: Path, call: Call) -> None:
    done = call(NAME, *INLINE, "study.n_trials=3", *objective_words("interrupts"), "--json")
    assert done.code == 130
    assert end_of(done.stderr)[1:] == [
        "SIGINT: running trials write a checkpoint and stop, within #; once more: at once",
        "report: studies/a/report.html",
        "best trials",
        "trial val_loss x state",
        "#",
        "a: # interrupted, # finished in #",
        "best model: studies/a/best.pt",
        "go on with: python -m automl resume a",
        "see it all: python -m automl ui a",
    ]
    assert answer_of(done)["ended"] == "interrupted"


def test_a_sweep_that_fails_says_all_before_its_error(folder: Path, call: Call) -> None:
    done = call(NAME, *INLINE, "study.n_trials=3", *objective_words("always_raises"), "--json")
    assert done.code == 1
    lines = end_of(done.stderr)
    assert [line for line in lines if "further repeats" not in line] == [
        "trial # failed: ValueError: the table is gone",
        "trial # failed: ValueError: the table is gone",
        "report: studies/a/report.html",
        "failed by cause",
        "#",
        "a: # failed in #",
        "see it all: python -m automl ui a",
        "automl: no trial finished; the last error: ValueError: the table is gone",
    ]
    assert list(closing_events(folder)) == ["SweepEnded", "ReportPage"]
