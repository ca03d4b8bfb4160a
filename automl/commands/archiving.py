"""`archive` and `restore`: a whole study as one file.

An archive is a gzipped tar with one folder of the study's name. The folder has all files of the
study but its lock, open requests, and the folders of sweeps that joined it, whose events are in
the database. A file of two names is there twice, and links lead to places in the study. `archive`
refuses what `restore` would, and reads the file back before it takes its name.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from automl.commands.command_call import CommandCall
from automl.config import STUDY_NAME_PATTERN
from automl.config.command_arguments import ArchiveArguments, RestoreArguments
from automl.errors import ConfigError, StorageError
from automl.record.disk import file_kind, make_folder
from automl.record.output_file import find_output, open_output
from automl.record.studies import find_study
from automl.record.study_directory import (
    JOINED_FOLDER,
    StudyDirectory,
    read_study_place,
    settle_restored_place,
    study_command,
)
from automl.record.study_files import LOCK, REQUESTS_FOLDER, StudyFiles
from automl.record.texts import say_on_stdout, size_text
from automl.terminal.machine_output import write_answer
from automl.tracking.long_step import long_step

_SUFFIX = ".tar.gz"
_LEFT_OUT = (LOCK, REQUESTS_FOLDER, JOINED_FOLDER)
_LEVEL = 1
"""Degree of compression: it hardly shrinks a checkpoint, and shrinks an event log to a tenth."""
_N_NAMED = 5
"""Largest number of files that a refusal names."""
_CHUNK_BYTES = 2**20


def archive(call: CommandCall) -> int:
    """Write `study.name`, or the newest study, as one file. Raises AutoMLError."""
    config = call.config
    path = find_study(config.study)
    to = call.typed_arguments(ArchiveArguments).to
    output = Path(to or f"{path.name}{_SUFFIX}")
    file = find_output("to", output)
    if to is None and file.exists():
        raise ConfigError(f"{output} exists; name the file to write, to=FILE, or remove it.")
    if file.is_relative_to(path.resolve()):
        raise ConfigError(f"to={output}: it lies in the study itself; name a file elsewhere.")
    with (
        StudyDirectory.open(replace(config.study, name=path.name), must_exist=True),
        long_step(f"archiving study {path.name}"),
    ):
        entries = _study_entries(path.resolve())
        with open_output("to", output) as written:
            _write_archive(written, path.name, entries)
            read_back(Path(written.name), len(entries))
    size_bytes = file.stat().st_size
    say_on_stdout(f"study {path.name} is archived in {output} ({size_text(size_bytes, 1024)})")
    write_answer({"name": path.name, "output": str(output), "bytes": size_bytes})
    return 0


def _study_entries(study: Path) -> list[tuple[str, Path]]:
    """Return the name in the archive and the path of every file, folder and link of a study.

    Raises ConfigError for those that no archive holds, and for what is no whole study.
    """
    if file_kind(StudyFiles(study).config.lstat().st_mode):
        raise ConfigError(f"{StudyFiles(study).config}: must be a plain file; make it one.")
    read_study_place(study)
    entries, refused = [(".", study)], []
    for folder, folders, files in os.walk(study, onerror=_raise):
        if Path(folder) == study:
            folders[:] = [name for name in folders if name not in _LEFT_OUT]
            files = [name for name in files if name not in _LEFT_OUT]
        for path in (Path(folder, name) for name in sorted((*folders, *files))):
            name, mode = str(path.relative_to(study)), path.lstat().st_mode
            if stat.S_ISLNK(mode) and _link_text(path, study) is None:
                refused.append(f"{name} is a link to {os.readlink(path)}, outside of the study")
            elif not (stat.S_ISLNK(mode) or stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                refused.append(f"{name} is {file_kind(mode)}")
            entries.append((name, path))
    if refused:
        more = f"; and {len(refused) - _N_NAMED} more" if len(refused) > _N_NAMED else ""
        raise ConfigError(
            f"study.name={study.name}: an archive does not hold all of it: "
            f"{'; '.join(refused[:_N_NAMED])}{more}. Move or remove that, or put in its place what "
            "it stands for, then archive again."
        )
    return entries


def _raise(error: OSError) -> None:
    raise error


def _link_text(link: Path, study: Path) -> str | None:
    """Return what a link says that it leads to, relative to its folder; None: it leads out of the
    study. `study` and the folder of `link` are real paths."""
    text, real = os.readlink(link), Path(os.path.realpath(link))
    if not real.is_relative_to(study):
        return None
    passes_outside = not Path(os.path.normpath(link.parent / text)).is_relative_to(study)
    if os.path.isabs(text) or passes_outside:
        return os.path.relpath(real, link.parent)
    return text


def _write_archive(file: BinaryIO, name: str, entries: Sequence[tuple[str, Path]]) -> None:
    study = entries[0][1]
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL) as tar:
        for relative, path in entries:
            info = tar.gettarinfo(path, str(PurePosixPath(name, relative)))
            if info.islnk():  # a second name of a file in the archive becomes a file of its own
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
            if info.issym():
                info.linkname = _link_text(path, study) or info.linkname
            if info.isreg():
                with path.open("rb") as content:
                    tar.addfile(info, content)
            else:
                tar.addfile(info)
    file.flush()


def read_back(file: Path, n_entries: int) -> None:
    """Raise OSError unless the file is an archive of a study, whose entries can all be read."""
    try:
        with tarfile.open(file) as tar:
            _, members = _study_members(tar)
            _read_to_end(tar)
    except _UNREADABLE as error:
        raise OSError(f"it cannot be read back: {_first_line(error)}") from error
    if len(members) != n_entries:
        raise OSError(f"{len(members)} of {n_entries} entries can be read back")


def restore(call: CommandCall) -> int:
    """Make a study of the file, under its own name or `study.name`. Raises AutoMLError; a folder
    that exists is never changed."""
    config, file = call.config, call.typed_arguments(RestoreArguments).file
    if file is None:
        raise ConfigError("restore needs the file that `archive` wrote: file=FILE.")
    source, folder = Path(file), Path(config.study.dir)
    with long_step(f"restoring {source}"), _extracted(source, folder) as extracted:
        name = config.study.name or extracted.name
        study = replace(config.study, name=name)
        target = folder / name
        if target.exists() or target.is_symlink():
            raise ConfigError(
                f"study.name={name}: {target} exists; restore it under another name, "
                "name=NAME, or into another folder, study.dir=FOLDER."
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
        with _storage_errors(source, "read"):
            tar = tarfile.open(source)  # noqa: SIM115  closed below
        with tar, _storage_errors(beside, "written"):
            name, members = _study_members(tar)
            tar.extractall(beside, (m for m in members if not m.issym()), filter="data")
            _read_to_end(tar)
            _make_links(beside.resolve() / name, [m for m in members if m.issym()])
        yield beside / name
    except _UNREADABLE as error:
        raise ConfigError(
            f"file={source}: this is no whole study that `archive` wrote "
            f"({_first_line(error)}); name another file, or archive the study again."
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class _ForeignFileError(Exception):
    """Raised for a file that `archive` did not write."""


_UNREADABLE = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, _ForeignFileError)
"""What is raised for a file that holds no whole study."""


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(":")


def _study_members(tar: tarfile.TarFile) -> tuple[str, list[tarfile.TarInfo]]:
    """Return the name and the entries of the one study in the file. Raises _ForeignFileError for
    any other file."""
    members = tar.getmembers()
    paths = [PurePosixPath(member.name) for member in members]
    links = {path for path, member in zip(paths, members, strict=True) if member.issym()}
    files = {member.name for member in members if member.isfile()}
    for path, member in zip(paths, members, strict=True):
        # Earlier versions wrote a second name of a file as a hard link.
        is_file = member.isfile() or (member.islnk() and member.linkname in files)
        if not (is_file or member.isdir() or member.issym()):
            raise _ForeignFileError(f"{path} is no file, folder or link")
        if ".." in path.parts or links.intersection(path.parents):
            raise _ForeignFileError(f"{path} lies outside")
    names = {path.parts[0] for path in paths}
    name = names.pop() if len(names) == 1 else ""
    if not STUDY_NAME_PATTERN.fullmatch(name) or len({*paths}) < len(paths):
        raise _ForeignFileError("it has not one folder")
    if str(StudyFiles(Path(name)).config) not in files:
        raise _ForeignFileError("it has no settings")
    return name, members


def _read_to_end(tar: tarfile.TarFile) -> None:
    """Read the rest of the file, at whose end is the checksum of all that it holds."""
    assert tar.fileobj is not None
    while tar.fileobj.read(_CHUNK_BYTES):
        pass


def _make_links(study: Path, members: Sequence[tarfile.TarInfo]) -> None:
    """Make the links of an extracted study. Raises _ForeignFileError for one that leads out."""
    links = [study.joinpath(*PurePosixPath(member.name).parts[1:]) for member in members]
    for link, member in zip(links, members, strict=True):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(member.linkname)
    for link, member in zip(links, members, strict=True):
        if _link_text(link, study) != member.linkname:
            raise _ForeignFileError(f"{member.name} leads out of the study")


@contextmanager
def _storage_errors(path: Path, done: str) -> Iterator[None]:
    """Raise StorageError for the disk's errors within the block."""
    try:
        yield
    except gzip.BadGzipFile:  # a file that cannot be read as one
        raise
    except OSError as error:
        raise StorageError(
            f"{error.filename or path} cannot be {done} ({error.strerror}): mend that, or name "
            "another file, then give the command again."
        ) from error
