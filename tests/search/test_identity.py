"""What a study is: its identity, its name, and who may go on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from automl.errors import ConfigError, StudyInUseError
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.study_identity import FUNCTION_PARTS_PREFIX
from automl.trial import (
    TooLargeOutcome,
)
from tests.search.conftest import ENTRIES, Studies, run

IDENTITY: dict[str, Any] = {"space": ENTRIES, "study": {"metric": "val_loss", "seed": 0}}


def test_a_study_keeps_its_uuid_and_another_has_its_own(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    uuid = study.uuid
    assert studies.reopen(study).uuid == uuid
    (tmp_path / "other").mkdir()
    assert studies.open(directory=tmp_path / "other").uuid != uuid


def test_a_changed_identity_is_refused_with_the_differences_and_nothing_written(
    studies: Studies, tmp_path: Path
) -> None:
    run(studies.open(identity=IDENTITY), 2)
    studies.close_and_check()
    before = (tmp_path / "journal.log").read_bytes()
    changed = {
        "space": ENTRIES | {"depth": {"low": 2, "high": 9}},
        "study": {"metric": "val_error", "seed": 0},
        "data": {"digest": "abc"},
    }
    with pytest.raises(ConfigError) as raised:
        studies.open(identity=changed)
    assert str(raised.value).splitlines() == [
        "study.name=toy was begun with other settings, so its trials could not be compared with "
        "new ones:",
        "  space.depth.high: 8 in the study, 9 now",
        '  study.metric: "val_loss" in the study, "val_error" now',
        '  data.digest: not set in the study, "abc" now',
        "Take the changes back to go on with it, or choose another study.name.",
    ]
    assert (tmp_path / "journal.log").read_bytes() == before
    assert studies.open(identity=IDENTITY).n_asked == 2, "and it is not left locked"


def test_a_space_that_has_grown_is_told_how_the_study_goes_on(studies: Studies) -> None:
    run(studies.open(identity=IDENTITY), 1)
    studies.close_and_check()
    more = ENTRIES | {"more": {"low": 0, "high": 9}}
    wider = ENTRIES | {"depth": {"low": 2, "high": 9}}
    read = {"digest": "abc", "columns": {"price": "number"}}  # what were classes are values now
    for grown in ({"space": more}, {"space": wider}, {"data": read}):
        with pytest.raises(ConfigError, match="with its own settings: python -m automl resume"):
            studies.open(identity=IDENTITY | grown)


def test_another_space_is_told_how_it_is_edited(studies: Studies) -> None:
    run(studies.open(identity=IDENTITY), 1)
    studies.close_and_check()
    space = {n: of for n, of in ENTRIES.items() if n != "lr"}
    with pytest.raises(ConfigError) as raised:
        studies.open(
            identity=IDENTITY | {"space": space | {"depth": {"low": 2, "high": 9}, "new": [1]}}
        )
    hint = "or change the space for all further trials: python -m automl edit toy"
    command = f"{hint} space.depth.high=9 '~space.lr' 'space.new=[1]', or choose another"
    assert command in str(raised.value)


def test_what_may_change_is_so_from_then_on(studies: Studies) -> None:
    def made_of(*parts: str, metric: str = "val_loss") -> dict[str, Any]:
        return {"objective": {"parts": dict.fromkeys(parts, "x")}, "study": {"metric": metric}}

    study = studies.open(identity=made_of("source", "closure a"))
    uuid = study.uuid
    study.close()
    with pytest.raises(ConfigError, match=r"closure a: \"x\" in .*\n.*beside .* changed=True\.$"):
        studies.open(identity=made_of("source"))
    with pytest.raises(ConfigError, match=r"study\.metric.*\n.*another study\.name\.$"):
        studies.open(identity=made_of("source", metric="acc"), may_change=FUNCTION_PARTS_PREFIX)
    study = studies.open(identity=made_of("source", "global b"), may_change=FUNCTION_PARTS_PREFIX)
    assert studies.reopen(study, identity=made_of("source", "global b")).uuid == uuid


DEFAULTS: dict[str, Any] = {"study": {"goal": "least"}, "model": {"bias": True, "extra": None}}


def test_a_study_begun_before_a_setting_has_its_default(studies: Studies) -> None:
    newer = {**IDENTITY, "study": {**IDENTITY["study"], "goal": "least"}}
    newer |= {"model": {"bias": True, "extra": None}}
    study = studies.open(identity={**IDENTITY, "model": {}})
    studies.reopen(study, identity=newer, defaults=DEFAULTS).close()
    studies.open(identity={**IDENTITY, "model": {}}, defaults=DEFAULTS)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"bias": False}, "  model.bias: not set in the study, false now"),
        ({"extra": "x"}, '  model.extra: not set in the study, "x" now'),
        ({"depth": 2}, "  model.depth: not set in the study, 2 now"),
    ],
)
def test_a_setting_that_a_study_lacks_may_have_no_other_value(
    studies: Studies, model: dict[str, Any], line: str
) -> None:
    studies.open(identity=IDENTITY).close()
    with pytest.raises(ConfigError) as raised:
        studies.open(identity={**IDENTITY, "model": model}, defaults=DEFAULTS)
    assert str(raised.value).splitlines()[1:-1] == [line]


def test_a_setting_that_a_study_has_and_nobody_knows_is_refused(studies: Studies) -> None:
    studies.open(identity={**IDENTITY, "model": {"bias": True}}).close()
    with pytest.raises(ConfigError, match=r"model\.bias: true in the study, not set now"):
        studies.open(identity=IDENTITY, defaults=DEFAULTS)


def test_an_older_study_gets_its_metric_s_name_once(studies: Studies, tmp_path: Path) -> None:
    run(studies.open(metric="val_error"), 1)
    studies.close_and_check()
    journal = tmp_path / "journal.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    older = [line for line in lines if b"metric_names" not in line]
    assert len(older) == len(lines) - 1
    journal.write_bytes(b"".join(older))
    studies.reopen(studies.open(metric="val_error"), metric="val_error")
    assert journal.read_bytes().count(b"metric_names") == 1
    assert b'["val_error"]' in journal.read_bytes()


def test_a_tuple_in_an_identity_is_no_change(studies: Studies) -> None:
    study = studies.open(identity={"a": (1, 2)})
    studies.reopen(study, identity={"a": [1, 2]})


def test_a_study_in_use_is_refused(studies: Studies) -> None:
    studies.open()
    with pytest.raises(StudyInUseError):
        studies.open()


@pytest.mark.parametrize("sampler", [IndependentSampler(), TPE()])
def test_a_renamed_folder_goes_on_with_its_study(studies: Studies, sampler: Sampler) -> None:
    study = studies.open(sampler=sampler)
    study.ask()
    other = studies.reopen(study, name="other", sampler=sampler)
    assert (other.name, other.stored_name, other.uuid) == ("other", "toy", study.uuid)
    assert other.ask() is not None
    other.tell(1, TooLargeOutcome(1, 0.0, "no room", 0.5))
    assert other.n_asked == 2


def test_a_journal_of_several_studies_must_be_told_which(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    study.close()
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    optuna.create_study(study_name="second", storage=storage)
    with pytest.raises(ConfigError, match=r"study.name=third: .* holds 2 studies \(second, toy\)"):
        studies.open(name="third")
    assert studies.open().uuid == study.uuid


def test_a_folder_whose_study_the_database_lacks_is_refused(
    studies: Studies, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    study = studies.open(storage=url)
    (tmp_path / "events.log").write_text("a trial\n")
    studies.reopen(study, storage=url).close()
    with pytest.raises(ConfigError, match="give it its name back"):
        studies.open(storage=url, name="renamed")
    assert len(optuna.get_all_study_names(url)) == 1


def test_a_study_that_someone_else_made_is_refused(studies: Studies, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    optuna.create_study(study_name="toy", storage=url).ask()
    with pytest.raises(ConfigError, match="holds a study of this name that automl did not make"):
        studies.open(storage=url)


def test_a_study_that_was_killed_while_it_was_made_is_made(studies: Studies) -> None:
    study = studies.open()
    study.close()
    journal = studies.directory / "journal.log"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    assert studies.open().n_asked == 0
