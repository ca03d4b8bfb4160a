"""`archive` and `restore`: write a study as one file, and make a study of such a file.

The file is a gzipped tar with one folder of the study's name. The folder has all files of the study
but its lock and the folders of sweeps that joined it, whose events are in the database.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from automl.config import STUDY_NAME_PATTERN, Config
from automl.errors import ConfigError, StorageError
from automl.record.disk import make_folder, open_replacing
from automl.record.studies import find_study
from automl.record.study_directory import (
    JOINED_FOLDER,
    StudyDirectory,
    settle_restored_place,
    study_command,
)
from automl.record.study_files import LOCK, StudyFiles
from automl.record.texts import say_on_stdout
from automl.running.display.machine_output import write_answer
from automl.tracking.long_step import long_step

_SUFFIX = ".tar.gz"
_LEFT_OUT = (LOCK, JOINED_FOLDER)
_LEVEL = 1
"""Degree of compression: a checkpoint hardly gets smaller, and an event log is at its tenth."""


def archive(config: Config, stored_config: str) -> int:
    """Write `study.name`, or the newest study, as one file. Raises AutoMLError."""
    path = find_study(config.study)
    output = Path(config.archive.output or f"{path.name}{_SUFFIX}")
    if config.archive.output is None and output.exists():
        raise ConfigError(
            f"archive.output: {output} exists; name the file to write, archive.output=FILE, or "
            "remove it."
        )
    if output.resolve().is_relative_to(path.resolve()):
        raise ConfigError(
            f"archive.output={output}: it lies in the study itself; name a file elsewhere."
        )
    with (
        StudyDirectory.open(replace(config.study, name=path.name), must_exist=True),
        long_step(f"archiving study {path.name}"),
        _storage_errors(output, "written"),
        open_replacing(output) as file,
        tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL) as tar,
    ):
        for entry in sorted(path.iterdir()):
            if entry.name not in _LEFT_OUT:
                tar.add(entry, f"{path.name}/{entry.name}")
    size_mib = output.stat().st_size / 2**20
    say_on_stdout(f"study {path.name} is archived in {output} ({size_mib:,.1f} MiB)")
    write_answer({"name": path.name, "output": str(output), "bytes": output.stat().st_size})
    return 0


def restore(config: Config, stored_config: str) -> int:
    """Make a study of the file `restore.input`, under its own name or `study.name`. Raises
    AutoMLError; a folder that exists is never changed."""
    if config.restore.input is None:
        raise ConfigError("restore needs the file that `archive` wrote: restore.input=FILE.")
    source, folder = Path(config.restore.input), Path(config.study.dir)
    with long_step(f"restoring {source}"), _extracted(source, folder) as extracted:
        name = config.study.name or extracted.name
        study = replace(config.study, name=name)
        target = folder / name
        if target.exists() or target.is_symlink():
            raise ConfigError(
                f"study.name={name}: {target} exists; restore it under another name, "
                "study.name=NAME, or into another folder, study.dir=FOLDER."
            )
        is_copy = settle_restored_place(extracted, target, study)
        with _storage_errors(target, "written"):
            extracted.rename(target)
    as_copy = ", as a copy that gets runs of its own in MLflow" if is_copy else ""
    say_on_stdout(f"study {name} is restored in {target}{as_copy}")
    say_on_stdout(f"look at it: {study_command('status', study)}")
    write_answer({"name": name, "folder": str(target)})
    return 0


@contextmanager
def _extracted(source: Path, folder: Path) -> Iterator[Path]:
    """Extract the study of the file in a hidden folder beside the studies. Yield the study's
    folder; what is left of the hidden folder is removed at the end."""
    beside = folder / f".restore.{os.getpid()}.part"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with _storage_errors(beside, "written"):
            make_folder(beside)
        with _storage_errors(source, "read"), tarfile.open(source) as tar:
            name = _study_in(tar, source)
            tar.extractall(beside, filter="data")
        if not StudyFiles(beside / name).config.is_file():
            raise _foreign_file_error(source)
        yield beside / name
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise _foreign_file_error(source) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _study_in(tar: tarfile.TarFile, source: Path) -> str:
    """Return the name of the one study in the file. Raises ConfigError for any other file: links
    and devices are in none that `archive` wrote."""
    members = tar.getmembers()
    names = {PurePosixPath(member.name).parts[0] for member in members}
    are_plain = all(member.isfile() or member.isdir() for member in members)
    name = names.pop() if len(names) == 1 else ""
    if not (are_plain and STUDY_NAME_PATTERN.fullmatch(name)):
        raise _foreign_file_error(source)
    return name


def _foreign_file_error(source: Path) -> ConfigError:
    return ConfigError(
        f"restore.input={source}: this is no whole study that `archive` wrote; name another file, "
        "or archive the study again."
    )


@contextmanager
def _storage_errors(path: Path, done: str) -> Iterator[None]:
    """Raise StorageError for the disk's errors within the block."""
    try:
        yield
    except OSError as error:
        if isinstance(error, tarfile.TarError):  # a file that cannot be read as one
            raise
        raise StorageError(
            f"{error.filename or path} cannot be {done} ({error.strerror}): mend that, or name "
            "another file, then give the command again."
        ) from error
