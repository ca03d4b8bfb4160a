"""Steps of a release: each done once, and again where something of it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.commands.release import (
    ReleaseLedger,
    ReleaseRefusedError,
    ReleaseStep,
    Row,
    StepProducts,
    carry_out_steps,
    check_refit_gate,
    release_command,
    step_key,
    uncompared_refit_text,
)
from automl.config import StudyConfig
from automl.config.command_arguments import ReleaseArguments
from automl.trial import ModelsEvaluated, RowsKind, ScoreDifference, ScoreInterval


class Scene:
    """Two steps, the second of which reads the file that the first writes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.table, self.done = folder, "table", list[str]()
        self.rows: list[Row] = []
        self.said: list[str] = []
        self.fails = ""

    def release(self) -> None:
        self.rows, self.done, self.said = [], [], []
        steps = [
            ReleaseStep(
                "refit", lambda: step_key(table=self.table), self.is_there, lambda: self.do("a")
            ),
            ReleaseStep(
                "export", lambda: step_key(a=self.text("a")), self.is_there, lambda: self.do("b")
            ),
        ]
        ledger = ReleaseLedger(self.folder / "release.json")
        carry_out_steps(steps, ledger, self.said.append, self.rows.append)

    def do(self, name: str) -> tuple[str, StepProducts]:
        if self.fails == name:
            raise RuntimeError(name)
        self.done.append(name)
        source = self.table if name == "a" else self.text("a")
        (self.folder / name).write_text(f"{name} of {source}")
        return f"made {name}", {name: self.text(name)}

    def is_there(self, made: StepProducts) -> bool:
        return all(
            (self.folder / name).exists() and self.text(name) == text for name, text in made.items()
        )

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_each_step_is_done_once(scene: Scene) -> None:
    scene.release()
    assert scene.done == ["a", "b"]
    assert scene.said == ["1 of 2: refit", "2 of 2: export"]
    assert [row[:2] for row in scene.rows] == [("refit", "made a"), ("export", "made b")]
    first = scene.rows
    scene.release()
    assert (scene.done, scene.said) == ([], [])
    assert [row[1] for row in scene.rows] == ["made a (done before)", "made b (done before)"]
    assert [row[2] for row in scene.rows] == [row[2] for row in first], "the seconds of then"


def test_what_failed_is_tried_again_and_nothing_before_it(scene: Scene) -> None:
    scene.fails = "b"
    with pytest.raises(RuntimeError):
        scene.release()
    assert [row[0] for row in scene.rows] == ["refit"]
    scene.fails = ""
    scene.release()
    assert scene.done == ["b"]


def test_what_has_changed_is_made_again_with_all_that_follows(scene: Scene) -> None:
    scene.release()
    scene.table = "other"
    scene.release()
    assert scene.done == ["a", "b"]
    (scene.folder / "b").unlink()
    scene.release()
    assert scene.done == ["b"]
    (scene.folder / "a").write_text("somebody's")
    scene.release()
    assert scene.done == ["a"], "and the second is as it was"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"refit": {}}', '{"refit": {"key": 1}}'])
def test_a_damaged_file_says_that_nothing_is_done(scene: Scene, text: str) -> None:
    scene.release()
    (scene.folder / "release.json").write_text(text)
    scene.release()
    assert scene.done == ["a", "b"]


# --- the gate -------------------------------------------------------------------------------------


def scored(verdict: str, metric: str = "loss") -> ModelsEvaluated:
    """The trial's score, 0.2 below the refit's."""
    score = {metric: ScoreInterval(0.5, 0.4, 0.6)}
    return ModelsEvaluated(
        time=0.0,
        kind=RowsKind.KEPT,
        n_rows=80,
        digest="d",
        trials=(3,),
        scores={"refit-trial-00003": score, "trial-00003": score},
        differences={"trial-00003": {metric: ScoreDifference(-0.2, -0.3, -0.1, verdict)}},
        refit_of=3,
    )


@pytest.mark.parametrize("verdict", ["worse", "may be chance"])
def test_a_refit_that_is_no_worse_passes(verdict: str) -> None:
    assert check_refit_gate(scored(verdict), "val_loss", "register") == (
        "refit-trial-00003: loss 0.5 (0.4 to 0.6), +0.2 (+0.1 to +0.3) from that of trial-00003"
    )


def test_a_refit_that_is_worse_than_its_trial_stops_it() -> None:
    with pytest.raises(ReleaseRefusedError) as stopped:
        check_refit_gate(scored("better", "auc"), "val_auc", "automl register which=3")
    said = str(stopped.value)
    assert "auc 0.5 (0.4 to 0.6), +0.2 (+0.1 to +0.3) from that of trial-00003, on 80 rows" in said
    assert "Nothing was exported or registered." in said
    assert said.endswith("automl register which=3")
    assert stopped.value.exit_code == 1


def test_a_release_goes_on_with_the_settings_that_it_was_given() -> None:
    arguments = ReleaseArguments(seeds=8, rows="all", as_="house prices")
    assert release_command(StudyConfig(name="a"), arguments) == (
        "python -m automl release a rows=all seeds=8 'as=house prices'"
    )


def test_a_refit_that_has_seen_all_rows_is_not_compared() -> None:
    scores = {"trial-00003": {"loss": ScoreInterval(0.5, 0.4, 0.6)}, "linear": {}}
    event = ModelsEvaluated(
        0.0,
        RowsKind.OUT_OF_FOLD,
        240,
        "a",
        (3,),
        scores,
        {"linear": {"loss": ScoreDifference(0.1, 0.05, 0.2, "worse")}},
    )
    said: list[str] = []
    result = uncompared_refit_text(event, "val_auc", said.append)
    assert result == "not compared: trial-00003's loss stands for it, 0.5 (0.4 to 0.6)"
    assert said == [
        "the refit has seen all rows, and cannot be compared with trial-00003; beside that, on 240 "
        "rows out-of-fold, by which trials were chosen, linear is worse. Rows that came later "
        "compare them: data.test=FILE"
    ]
