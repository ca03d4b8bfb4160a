"""The study directory: names, the lock, and files that are whole or not there."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest

from automl.config import STUDY_NAME_PATTERN, StudyConfig
from automl.errors import ConfigError, StudyInUseError
from automl.record.disk import write_durably
from automl.record.studies import is_study_held
from automl.record.study_directory import StudyDirectory, holding_for, make_study_name
from automl.running.opening.parts import open_study_directory
from automl.trial import trial_name
from tests.lossy_disk import LossyDisk


def settings(folder: Path, name: str = "brave-otter") -> StudyConfig:
    return StudyConfig(name=name, dir=str(folder))


def test_a_made_up_name_is_allowed_and_new() -> None:
    names = {make_study_name() for _ in range(50)}
    assert all(STUDY_NAME_PATTERN.fullmatch(name) for name in names)
    assert len(names) > 40


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "0", "x" * 128])
def test_names_that_are_allowed(name: str) -> None:
    assert StudyConfig(name=name).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "_a", "a/b", "a b", "ä", "x" * 129])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"study\.name=.*1 to 128 letters"):
        StudyConfig(name=name)


def test_trial_names_sort_as_their_numbers() -> None:
    assert trial_name(7) == "trial-00007"


# --- the directory --------------------------------------------------------------------------------


def test_a_study_that_must_exist_is_refused_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "calm-crane").mkdir()
    (tmp_path / "calm-crane" / "config.yaml").touch()
    with pytest.raises(ConfigError, match=r"study\.name=brave-otter: .* there are: calm-crane"):
        StudyDirectory.open(settings(tmp_path), must_exist=True)
    assert not (tmp_path / "brave-otter").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "studies").touch()
    with pytest.raises(ConfigError, match=r"study\.dir=.*cannot be written.*study\.dir=…"):
        StudyDirectory.open(settings(tmp_path / "studies"), must_exist=False)


def test_a_study_refused_before_it_began_leaves_nothing(tmp_path: Path) -> None:
    directory = StudyDirectory.open(settings(tmp_path), must_exist=False)
    assert directory.fresh
    with pytest.raises(ConfigError), directory:
        raise ConfigError("the space is wrong")
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_failed_later_stays(tmp_path: Path) -> None:
    directory = StudyDirectory.open(settings(tmp_path), must_exist=False)
    directory.files.config.touch()
    with pytest.raises(ConfigError), directory:
        raise ConfigError("the disk is full")
    assert (tmp_path / "brave-otter" / "config.yaml").exists()
    with StudyDirectory.open(settings(tmp_path), must_exist=True) as directory:
        assert not directory.fresh


def test_a_folder_that_was_there_stays_when_a_study_is_refused(tmp_path: Path) -> None:
    (tmp_path / "brave-otter").mkdir()
    (notes := tmp_path / "brave-otter" / "notes").touch()
    with (
        pytest.raises(ConfigError),
        StudyDirectory.open(settings(tmp_path), must_exist=False),
    ):
        raise ConfigError("the space is wrong")
    assert notes.exists()


# --- the lock -------------------------------------------------------------------------------------


def test_a_second_sweep_is_told_who_holds_the_study(tmp_path: Path) -> None:
    with StudyDirectory.open(settings(tmp_path), must_exist=False) as directory:
        assert is_study_held(directory.path)
        holder = rf"pid {os.getpid()} of \S+ on {re.escape(socket.gethostname())}, since 20"
        with pytest.raises(StudyInUseError, match=holder) as caught:
            StudyDirectory.open(settings(tmp_path), must_exist=False)
    assert "python -m automl status brave-otter" in str(caught.value)
    assert not is_study_held(directory.path)


@pytest.mark.parametrize("command", ["refit", "release"])
def test_the_sweep_of_another_command_is_a_sweep(command: str, tmp_path: Path) -> None:
    study = settings(tmp_path)
    with holding_for(command), open_study_directory(study, must_exist=False) as directory:
        assert is_study_held(directory.path)


def test_a_study_whose_trials_run_on_stays_locked(tmp_path: Path) -> None:
    with StudyDirectory.open(settings(tmp_path), must_exist=False) as directory:
        directory.stay_locked()
    assert is_study_held(directory.path)


def test_a_pipe_in_the_place_of_a_lock_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert not is_study_held(tmp_path)


def test_a_holder_that_has_not_written_its_name_is_no_stumbling_block(tmp_path: Path) -> None:
    with StudyDirectory.open(settings(tmp_path), must_exist=False) as directory:
        (directory.path / "lock").write_text("")
        with pytest.raises(StudyInUseError, match="has not written its name yet"):
            StudyDirectory.open(settings(tmp_path), must_exist=False)


def test_who_only_looks_keeps_no_sweep_from_starting(tmp_path: Path) -> None:
    with StudyDirectory.open(settings(tmp_path), must_exist=False) as directory:
        directory.files.config.touch()
    command = [sys.executable, "-c", LOOK, str(directory.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"looking\n"
        try:
            for _ in range(2000):
                with StudyDirectory.open(settings(tmp_path), must_exist=True):
                    pass
        finally:
            process.kill()


LOOK = """
import sys
from pathlib import Path
from automl.record.studies import is_study_held

sys.stdout.write("looking\\n")
sys.stdout.flush()
while True:
    is_study_held(Path(sys.argv[1]))
"""
HOLD = """
import shutil
import sys
from pathlib import Path
from automl.config import StudyConfig
from automl.record.study_directory import StudyDirectory, holding_for

study, command = StudyConfig(name="brave-otter", dir=sys.argv[1]), sys.argv[2]
with holding_for(command), StudyDirectory.open(study, must_exist=False) as directory:
    sys.stdout.write("held\\n")
    sys.stdout.flush()
    sys.stdin.read()
    if command == "delete":
        shutil.rmtree(directory.path)
"""


@contextmanager
def held_for(folder: Path, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the study for a command until its standard input is closed."""
    words = [sys.executable, "-c", HOLD, str(folder), command]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process


class Answering(io.StringIO):
    """A stream that closes the standard input of a process when something is printed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._process = process

    def write(self, text: str) -> int:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        return super().write(text)


def test_a_sweep_waits_for_a_command_that_holds_an_idle_study(tmp_path: Path) -> None:
    with (
        held_for(tmp_path, "edit") as process,
        redirect_stdout(Answering(process)) as said,
        StudyDirectory.open(settings(tmp_path), must_exist=True) as directory,
    ):
        assert process.wait() == 0
        assert is_study_held(directory.path)
    assert said.getvalue() == "waiting for `edit`, which holds study brave-otter\n"


def test_a_command_that_holds_an_idle_study_is_named_and_is_no_sweep(tmp_path: Path) -> None:
    with held_for(tmp_path, "archive") as process:
        assert not is_study_held(tmp_path / "brave-otter")
        with pytest.raises(StudyInUseError) as caught:
            StudyDirectory.open(settings(tmp_path), must_exist=True, waits=False)
        process.kill()
    text = str(caught.value)
    assert f"`archive` holds this study (pid {process.pid} of " in text
    assert "wait for it or stop it, then give the command again" in text


def test_a_study_that_is_deleted_meanwhile_is_not_there(tmp_path: Path) -> None:
    with (
        held_for(tmp_path, "delete") as process,
        redirect_stdout(Answering(process)),
        pytest.raises(ConfigError, match="there is no such study"),
    ):
        StudyDirectory.open(settings(tmp_path), must_exist=True)
    with (
        held_for(tmp_path, "delete") as process,
        redirect_stdout(Answering(process)),
        StudyDirectory.open(settings(tmp_path), must_exist=False) as directory,
    ):
        assert directory.files.lock.exists()


def test_the_lock_of_a_killed_sweep_is_free(tmp_path: Path) -> None:
    with held_for(tmp_path, "sweep") as process:
        with pytest.raises(StudyInUseError, match=f"pid {process.pid} "):
            StudyDirectory.open(settings(tmp_path), must_exist=True)
        process.kill()
        process.wait()
    with StudyDirectory.open(settings(tmp_path), must_exist=True) as directory:
        assert is_study_held(directory.path)


# --- a power cut ----------------------------------------------------------------------------------


def test_a_new_study_and_its_folder_are_there_after_a_power_cut(
    tmp_path: Path, lossy_disk: LossyDisk
) -> None:
    with StudyDirectory.open(settings(tmp_path / "a" / "studies"), must_exist=False) as directory:
        write_durably(directory.files.config, "a: 1")
    assert lossy_disk.content(directory.files.config) == b"a: 1"
