"""Renaming, cloning and deleting a study, with its runs in MLflow."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from automl.commands.archiving import archive
from automl.commands.command_call import CommandCall
from automl.commands.upkeep import clone, delete, rename
from automl.config import Config, StudyConfig, TrackingConfig
from automl.config.command_arguments import CloneArguments, DeleteArguments, RenameArguments
from automl.errors import ConfigError, StudyInUseError
from automl.record.studies import read_study
from automl.record.study_directory import StudyDirectory, settle_place
from automl.tracking.view.run_update import StudyRef
from tests.mlflow_store import folder, mlflow_environment
from tests.tracking.conftest import Shown, shown
from tests.tracking.deliveries import deliver
from tests.tracking.scenes import NAME, UUID, sweep_ended, sweep_started, trial, write

__all__ = ["folder", "mlflow_environment", "shown"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred"),
]


def make_study(folder: Path, name: str, uuid: str) -> Path:
    """A study of two trials that MLflow has."""
    study = StudyConfig(name=name, dir=str(folder / "studies"))
    with StudyDirectory.open(study, must_exist=False) as directory:
        directory.files.config.write_text("study: {}\n")
        directory.files.journal.touch()
        settle_place(directory.path, study, uuid, name)
        started = replace(sweep_started(), study=name, study_uuid=uuid)
        write(directory.path, started, *trial(0), *trial(1), sweep_ended(2))
    deliver(directory.path, ref=StudyRef(uuid, name))
    return directory.path


@pytest.fixture
def study(folder: Path) -> Path:
    return make_study(folder, NAME, UUID)


def config(study: Path, **settings: Any) -> Config:
    """Return the config that names the study and its runs, with settings of `study`."""
    of_study = StudyConfig(name=study.name, dir=str(study.parent))
    uri = f"sqlite:///{study.parents[1] / 'mlflow.db'}"
    return Config(study=replace(of_study, **settings), tracking=TrackingConfig(uri=uri))


def renaming(study: Path, new_name: str) -> CommandCall:
    return CommandCall(config(study), arguments=RenameArguments(name=new_name))


def cloning(
    study: Path, new_name: str | None, text: str = "study: {}\n", **settings: Any
) -> CommandCall:
    named = config(study, name=new_name or study.name, **settings)
    arguments = CloneArguments(name=new_name)
    return CommandCall(named, text, arguments=arguments, stored_study=study)


def deleting(study: Path) -> CommandCall:
    return CommandCall(config(study), arguments=DeleteArguments(yes=True))


def experiments(shown: Shown) -> dict[str, int]:
    """Return the number of runs of each experiment that is not deleted."""
    found = shown.client.search_experiments()
    return {
        e.name: len(shown.client.search_runs([e.experiment_id]))
        for e in found
        if e.name != "Default"
    }


def test_a_renamed_study_keeps_its_trials_and_takes_its_experiment_with_it(
    study: Path, shown: Shown
) -> None:
    assert rename(renaming(study, "calm-lynx")) == 0
    assert not study.exists()
    record = read_study(study.with_name("calm-lynx"))
    assert (record.name, len(record.trials)) == ("calm-lynx", 2)
    assert experiments(shown) == {"calm-lynx": 3}


def test_a_study_is_not_renamed_onto_another(study: Path) -> None:
    other = study.with_name("calm-lynx")
    other.mkdir()
    with pytest.raises(ConfigError, match=r"name=calm-lynx: .* exists"):
        rename(renaming(study, other.name))
    assert len(read_study(study).trials) == 2


def test_a_clone_has_settings_and_no_trials_and_takes_no_name_that_exists(study: Path) -> None:
    begun = (study / "events.log").read_bytes()
    assert clone(cloning(study, "calm-lynx", "study: {name: calm-lynx}\n")) == 0
    other = study.with_name("calm-lynx")
    assert (other / "config.yaml").read_text() == "study: {name: calm-lynx}\n"
    assert not read_study(other).trials
    with pytest.raises(ConfigError, match=r"name=calm-lynx: .* exists"):
        clone(cloning(study, "calm-lynx"))
    assert (other / "config.yaml").read_text() == "study: {name: calm-lynx}\n"
    assert (study / "events.log").read_bytes() == begun
    with pytest.raises(ConfigError, match=r"the new study needs a name, too: name=NEW"):
        clone(cloning(study, None))


def test_a_clone_takes_no_name_that_the_database_of_its_study_has(
    study: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    optuna.create_study(study_name="calm-lynx", storage=url)
    with pytest.raises(ConfigError, match=r"calm-lynx: .* has a study of this name"):
        clone(cloning(study, "calm-lynx", storage=url))
    assert not study.with_name("calm-lynx").exists()


def test_a_deleted_study_leaves_nothing_in_its_folder_and_in_mlflow(
    study: Path, shown: Shown
) -> None:
    other = make_study(study.parents[1], "other", "another-uuid")
    assert delete(deleting(study)) == 0
    assert not study.exists()
    assert len(read_study(other).trials) == 2
    assert experiments(shown) == {"other": 3}
    again = make_study(study.parents[1], NAME, "a-new-uuid")
    assert experiments(shown) == {"other": 3, again.name: 3}, "runs of the first came back"


def test_runs_of_another_study_in_the_experiment_stay(study: Path, shown: Shown) -> None:
    (experiment,) = [e for e in shown.client.search_experiments() if e.name == NAME]
    kept = shown.client.create_run(experiment.experiment_id, run_name="by hand")
    delete(deleting(study))
    assert [run.info.run_id for run in shown.runs()] == [kept.info.run_id]


def test_nothing_is_deleted_unasked(
    study: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    with pytest.raises(ConfigError, match="--yes"):
        delete(CommandCall(config(study)))
    assert len(read_study(study).trials) == 2
    assert experiments(shown) == {NAME: 3}


def test_a_study_at_work_is_neither_renamed_nor_deleted_nor_archived(study: Path) -> None:
    whole = config(study)
    with StudyDirectory.open(whole.study, must_exist=True):
        for command, call in (
            (rename, renaming(study, "calm-lynx")),
            (delete, deleting(study)),
            (archive, CommandCall(whole)),
        ):
            with pytest.raises(StudyInUseError):
                command(call)
    assert len(read_study(study).trials) == 2
