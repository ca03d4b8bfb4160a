"""Shares with other sweeps on this machine the GPU memory promised but not yet shown by NVML.

Each sweep has one file in a folder that every user may write into, like /tmp. The sweep holds it by
`flock` while it lives, so the file of a dead sweep no longer counts. It is replaced as a whole, so
nobody reads half of one. Other sweeps' files are untrusted: limited in number, size and form, never
followed as links, never waited for; an odd file is ignored.

A sweep that decides on a start holds the `flock` of the folder itself, from reading the promises of
others until its own is shown, so two sweeps cannot overlook each other. What to promise is decided
in `admission/memory_caps.py`.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from automl.devices.device_reading import OtherPromises
from automl.trial import LOCAL_NODE, DeviceId

log = logging.getLogger(__name__)

FOLDER_VARIABLE = "AUTOML_PROMISES"
DEFAULT_FOLDER = "/tmp/automl-promises"
"""The folder must be the same for every user, so TMPDIR is not used."""
MAX_FILES = 1_000
MAX_BYTES = 256 * 1024
"""Largest size of one file: more than sixteen trials on each of a hundred devices need."""
_HEAD, _END = b"promises 1\n", b"end\n"
_NAME = re.compile(r"\d{1,10}-\d{1,10}-[0-9a-f]{16}")
_LINE = re.compile(
    rb"((?:GPU|MIG)-[\w/-]{1,100}) (\w{1,20}) (\d{1,15})(?: (\d{1,15}))?\n", re.ASCII
)
_N_TRIES = 5
LOCK_SECONDS = 1.0
"""How long a decision of another sweep is waited for; one takes milliseconds."""


@dataclass(frozen=True)
class MemoryPromise:
    """Memory of a GPU that was promised to a trial and that NVML does not show yet."""

    uuid: str
    key: str
    """Word that distinguishes the promise from the writer's other promises, and stays while it
    lasts."""
    size_bytes: int
    seen_seconds: float = math.inf
    """Time after which readings show in NVML's own figures what was taken of the promise, or given
    back.

    It is `time.monotonic()`, which all processes of a machine share. Infinite: NVML does not show
    it yet.
    """


def encode(promises: Sequence[MemoryPromise]) -> bytes:
    """Return the content of a file with these promises."""
    return b"".join([_HEAD, *map(_encode_promise, promises), _END])


def decode(content: bytes) -> tuple[MemoryPromise, ...]:
    """Return the promises of a file's content; empty for a text of any other form."""
    if len(content) > MAX_BYTES or not content.startswith(_HEAD) or not content.endswith(_END):
        return ()
    lines = content[len(_HEAD) : -len(_END)].splitlines(keepends=True)
    found = [_LINE.fullmatch(line) for line in lines]
    return tuple(_decode_promise(match) for match in found if match) if all(found) else ()


def _encode_promise(p: MemoryPromise) -> bytes:
    seen = "" if math.isinf(p.seen_seconds) else f" {math.ceil(1000 * p.seen_seconds)}"
    return f"{p.uuid} {p.key} {p.size_bytes}{seen}\n".encode()


def _decode_promise(match: re.Match[bytes]) -> MemoryPromise:
    seen = math.inf if match[4] is None else int(match[4]) / 1000
    return MemoryPromise(match[1].decode(), match[2].decode(), int(match[3]), seen)


class PromiseFolder:
    """Shows this sweep's promises to other sweeps, and reads theirs.

    A failure is logged once, and the sweep goes on by NVML alone.
    """

    def __init__(self, folder: str | None) -> None:
        """Open the folder; None: nothing is shown or read."""
        self._name = f"{os.getuid()}-{os.getpid()}-{secrets.token_hex(8)}"
        self._shown_content = encode([])
        self._file: int | None = None
        """Descriptor of the file that is shown, kept open for its lock."""
        self._folder: int | None = None
        self._mute = False
        self._lock_seconds = LOCK_SECONDS
        if folder is not None:
            try:
                self._folder = _open_folder(Path(folder))
            except OSError as error:
                _warn(f"{folder} cannot be opened", error)

    def show(self, promises: Sequence[MemoryPromise]) -> None:
        """Show these promises to all other sweeps, in place of those shown before. Call it from one
        thread."""
        content = encode(promises)
        if (
            self._folder is None
            or self._mute
            or (content == self._shown_content and self._is_in_place)
        ):
            return
        try:
            before, self._file = self._file, _replace(self._folder, self._name, content)
        except OSError as error:
            self._mute = True
            self._withdraw()  # a stale promise would keep others waiting
            _warn("a file for that cannot be written", error)
            return
        self._shown_content = content
        if before is not None:
            os.close(before)  # only now: an unlocked file looks like a dead sweep's

    def others(self, begun_seconds: float) -> OtherPromises:
        """Return what others show now that a reading begun at this time may have missed; any thread
        may ask."""
        if self._folder is None:
            return {}
        found: dict[tuple[DeviceId, str], int] = {}
        for name in _file_names(self._folder):
            if name != self._name:
                found |= missed_promises(
                    decode(_read_if_writer_lives(self._folder, name)), name, begun_seconds
                )
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other sweep enter meanwhile.

        A sweep that hangs in there, or a folder that cannot be locked, is warned of once. Nobody
        waits for it any more, until the lock is free again.
        """
        why_not: OSError | None = None
        if self._folder is not None:
            try:
                _lock(self._folder, self._lock_seconds)
            except OSError as error:  # a network file system may have no locks
                why_not = error
        if why_not is not None and self._lock_seconds:
            _warn("the folder for that cannot be locked", why_not)
        self._lock_seconds = LOCK_SECONDS if why_not is None else 0.0
        try:
            yield
        finally:
            if self._folder is not None and why_not is None:
                fcntl.flock(self._folder, fcntl.LOCK_UN)

    def close(self) -> None:
        """Withdraw this sweep's promises, and close the folder."""
        if self._folder is None:
            return
        self._withdraw()
        os.close(self._folder)
        self._folder = None

    def _withdraw(self) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder)
        os.close(self._file)
        self._file = None

    @property
    def _is_in_place(self) -> bool:
        """Whether the file is still in place: old files in /tmp may be swept away."""
        if self._file is None:
            return True
        with suppress(OSError):
            there = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            return there.st_ino == os.fstat(self._file).st_ino
        return False


def open_promises(devices: Sequence[DeviceId]) -> PromiseFolder:
    """Return the promise folder for these devices, for a sweep or for a command that only looks.

    The caller closes it.
    """
    return PromiseFolder(folder_of(devices, os.environ))


def folder_of(devices: Sequence[DeviceId], environment: Mapping[str, str]) -> str | None:
    """Return the folder in which sweeps of these devices show their promises.

    None: no device is a GPU, or AUTOML_PROMISES is empty.
    """
    if all(device.on_host for device in devices):
        return None
    return environment.get(FOLDER_VARIABLE, DEFAULT_FOLDER) or None


def missed_promises(
    promises: Sequence[MemoryPromise], writer: str, begun_seconds: float
) -> OtherPromises:
    """Return the promises of a sweep that a reading begun at this time may have missed."""
    found: dict[tuple[DeviceId, str], int] = {}
    for p in promises:
        if begun_seconds <= p.seen_seconds:
            where = (DeviceId(LOCAL_NODE, p.uuid), f"{writer} {p.key}")
            found[where] = max(p.size_bytes, found.get(where, 0))
    return found


def _warn(what: str, error: OSError) -> None:
    log.warning("sweeps at once on this machine may overlook each other: %s (%s)", what, error)


def _file_names(folder: int) -> Sequence[str]:
    """Return the names of the first files in the folder.

    The folder is opened anew: threads that share a descriptor share its position.
    """
    with suppress(OSError):
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            with os.scandir(listing) as entries:
                first = islice(entries, MAX_FILES)
                return [e.name for e in first if _NAME.fullmatch(e.name)]
        finally:
            os.close(listing)
    return ()


def _open_folder(path: Path) -> int:
    """Return a descriptor of the folder, which is created if it is missing.

    Raises OSError, also for a folder that is unsafe to share: a link, or a stranger's in which
    files of others can be renamed.
    """
    with suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o1777)  # mkdir's mode is cut by the umask
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    info = os.fstat(folder)
    if info.st_uid not in (0, os.getuid()) and not info.st_mode & stat.S_ISVTX:
        os.close(folder)
        raise PermissionError(1, "it belongs to another user, and has no sticky bit")
    return folder


def _replace(folder: int, name: str, content: bytes) -> int:
    """Put the file in place, locked before anybody can see it, and return its descriptor."""
    hidden = f".{name}"
    with suppress(FileNotFoundError):
        os.unlink(hidden, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(hidden, flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.write(file, content) != len(content):
            raise OSError(28, "No space left on device")
        os.fchmod(file, 0o644)
        os.rename(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.close(file)
        with suppress(OSError):
            os.unlink(hidden, dir_fd=folder)
        raise
    return file


def _read_if_writer_lives(folder: int, name: str) -> bytes:
    """Return the file's content; empty where its writer has ended, and then remove it if it is
    ours."""
    with suppress(OSError):
        for _ in range(_N_TRIES):
            content = _read(folder, name)
            if content is not None:
                return content
    return b""


def _read(folder: int, name: str) -> bytes | None:
    """Return the content of a file; None: it was replaced while it was read.

    O_NONBLOCK keeps opening a pipe from waiting for its other end.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=folder)
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
            return b""
        if _is_held(file):
            return os.read(file, MAX_BYTES + 1)
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if there.st_ino != info.st_ino:
            return None
        if info.st_uid == os.getuid():
            os.unlink(name, dir_fd=folder)
        return b""
    finally:
        os.close(file)


def _lock(folder: int, seconds: float) -> None:
    """Lock the folder. Raises OSError where that is not possible in this time."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.001)
        else:
            return


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
