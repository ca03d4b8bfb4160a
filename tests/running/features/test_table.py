"""The table of features: what it names is there, and the hooks run in its order."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType

import pytest

from automl import trial as vocabulary
from automl.api.study_handle import compose_for_call
from automl.cli.command_registry import COMMANDS
from automl.config import Config
from automl.errors import StorageError
from automl.record.event_log import EVENT_NAMES, EventLog
from automl.record.study_files import StudyFiles
from automl.running.features.feature import (
    ClosingTable,
    SweepClock,
    SweepEnding,
    SweepFeature,
    SweepSite,
)
from automl.running.features.table import FEATURES, Feature, SweepFeatures
from automl.running.loop.messages import StopReason
from automl.running.prepare.preparation import prepare_study
from automl.search.study import Study
from automl.terminal.live_display import ViewFailureLog
from automl.terminal.view import SweepView
from automl.trial import FinishedOutcome

PACKAGE = Path(vocabulary.__file__).parent.parent


def module_of(feature: Feature) -> ModuleType:
    module = inspect.getmodule(feature.make)
    assert module is not None
    return module


def made_in(module: ModuleType) -> set[type]:
    """The events that a module makes."""
    called = {
        node.func.id
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return {event for event in EVENT_NAMES if event.__name__ in called}


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_settings_commands_and_events_of_a_feature_are_there(feature: Feature) -> None:
    for key in feature.settings:
        group, name = key.split(".")
        assert name in {field.name for field in fields(getattr(Config(), group))}, key
    assert set(feature.commands) <= set(COMMANDS)
    assert set(feature.events) == made_in(module_of(feature))
    folded = (PACKAGE / "record" / "study_record.py").read_text("utf-8")
    shown = [*(PACKAGE / "tracking").rglob("*.py"), *(PACKAGE / "report_page").glob("*.py")]
    texts = [folded, *(path.read_text("utf-8") for path in shown)]
    for event in feature.events:
        assert any(event.__name__ in text for text in texts), f"nobody shows {event}"


def test_each_feature_has_a_module_and_each_setting_one_feature() -> None:
    modules = {Path(str(module_of(feature).__file__)).name for feature in FEATURES}
    there = {path.name for path in (PACKAGE / "running" / "features").glob("*.py")}
    assert there - modules == {"__init__.py", "feature.py", "table.py"}
    settings = [key for feature in FEATURES for key in feature.settings]
    assert len(settings) == len(set(settings))


# --- the hooks ------------------------------------------------------------------------------------


class Recorder(SweepFeature):
    """Writes down what it hears, and fails where it is told to."""

    def __init__(self, name: str, heard: list[str], fails: dict[str, Exception]) -> None:
        self._name, self._heard, self._fails = name, heard, fails

    def _hear(self, hook: str) -> None:
        self._heard.append(f"{hook} {self._name}")
        if (error := self._fails.get(hook)) is not None:
            raise error

    def trial_ended(self, outcome: object) -> Iterable[str]:
        self._hear("trial_ended")
        yield f"said by {self._name}"

    def why_no_more(self) -> str | None:
        self._hear("why_no_more")
        return f"enough for {self._name}"

    def kept_seconds(self) -> float:
        return 10.0 if self._name == "one" else 5.0

    def look(self, view: SweepView) -> SweepView:
        self._hear("look")
        return replace(view, reason=f"{view.reason or ''}{self._name} ")

    def end(self, ending: SweepEnding) -> None:
        self._hear("end")

    def closing(self, ending: SweepEnding) -> Iterable[str | ClosingTable]:
        yield f"first of {self._name}"
        self._hear("closing")

    def close(self) -> None:
        self._hear("close")


@pytest.fixture
def site(tmp_path: Path) -> Iterable[SweepSite]:
    words = ["study.name=a", "sampler=random", "data=disc", "data.n_train=50"]
    prepared = prepare_study(compose_for_call("sweep", words).config)
    with (
        EventLog.open(tmp_path / "events.log") as log,
        closing(Study.open(prepared.config.study, prepared.rules, tmp_path)) as study,
    ):
        yield SweepSite(
            study=study,
            log=log,
            files=StudyFiles(tmp_path),
            say=print,
            clock=SweepClock(0.0, 0.0),
            prepared=lambda: prepared,
            n_places=lambda: 1,
        )


def features(
    site: SweepSite, heard: list[str], fails: Sequence[dict[str, Exception]] = ({}, {})
) -> SweepFeatures:
    made = [Recorder(name, heard, fails[n]) for n, name in enumerate(("one", "two"))]
    lines = [Feature("one", lambda site: made[0]), Feature("none", lambda site: None)]
    return SweepFeatures(site, ViewFailureLog(), [*lines, Feature("two", lambda site: made[1])])


def test_hooks_run_in_the_order_of_the_table(site: SweepSite) -> None:
    heard: list[str] = []
    found = features(site, heard)
    assert list(found.trial_ended(FinishedOutcome(0, 1.0, 0.5))) == ["said by one", "said by two"]
    assert found.why_no_more() == "enough for one", "the first reason is enough"
    assert found.kept_seconds() == 10.0, "the most that one keeps"
    assert found.look(SweepView("a", "a", 0.0, 1, "loss")).reason == "one two "
    ending = SweepEnding(site.files.path)
    found.end(ending)
    assert list(found.closing(ending)) == ["first of one", "first of two"]
    found.close()
    hooks = ("trial_ended", "look", "end", "closing", "close")
    both = [f"{hook} {name}" for hook in hooks for name in ("one", "two")]
    assert heard == [*both[:2], "why_no_more one", *both[2:]]


def test_a_feature_that_cannot_be_shown_or_fails_at_the_end_keeps_no_other(
    site: SweepSite,
) -> None:
    heard: list[str] = []
    fails: dict[str, Exception] = {h: ValueError("odd") for h in ("look", "end", "closing")}
    found = features(site, heard, (fails, {}))
    assert found.look(SweepView("a", "a", 0.0, 1, "loss")).reason == "two "
    ending = SweepEnding(site.files.path)
    found.end(ending)
    assert (ending.stop, ending.error) == (None, None)
    assert list(found.closing(ending)) == ["first of two"]


def test_a_full_disk_at_the_end_breaks_the_sweep_off_with_the_first_error(
    site: SweepSite,
) -> None:
    heard: list[str] = []
    full, later = StorageError("full"), StorageError("full still")
    ending = SweepEnding(site.files.path, StopReason.TIMEOUT)
    features(site, heard, ({"end": full}, {"end": later})).end(ending)
    assert heard == ["end one", "end two"], "each step says by itself what it does then"
    assert (ending.stop, ending.error) == (StopReason.BROKEN, full)
    assert not ending.has_result


def test_a_plain_sweep_has_no_more_features_than_it_wants(site: SweepSite) -> None:
    made = [feature.name for feature in FEATURES if feature.make(site) is not None]
    wanted = ["notices", "value", "waits", "winner", "live page", "report"]
    assert made == wanted, "an edit may set the value"
