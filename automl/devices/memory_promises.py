"""What sweeps on one machine have promised of its GPUs and NVML does not show yet, for each other.

One file per sweep in a folder that every user may write into, as /tmp: held by `flock` while the
sweep lives, so that what a dead one left counts no more; replaced as a whole, so that nobody reads
half of one. Files of others are strangers' texts: bounded in number, size and form, never followed
as links, never waited for; what is odd about one makes it count for nothing.

Whoever shows its promise before it looks at those of others is never overlooked by both.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from automl.devices.device_reading import Elsewhere
from automl.trial import LOCAL_NODE, DeviceId

log = logging.getLogger(__name__)

FOLDER_VARIABLE = "AUTOML_PROMISES"
DEFAULT_FOLDER = "/tmp/automl-promises"
"""Every user has to find the same one, so no TMPDIR here."""
MAX_FILES = 1_000
MAX_BYTES = 256 * 1024
"""Of one file: what sixteen trials on each of a hundred devices need, and more."""
_HEAD, _END = b"promises 1\n", b"end\n"
_NAME = re.compile(r"\d{1,10}-\d{1,10}-[0-9a-f]{16}")
_LINE = re.compile(
    rb"((?:GPU|MIG)-[\w/-]{1,100}) (\w{1,20}) (\d{1,15})(?: (\d{1,15}))?\n", re.ASCII
)
_N_TRIES = 5


@dataclass(frozen=True)
class MemoryPromise:
    """Memory of a GPU that a trial was promised and that NVML does not show yet."""

    uuid: str
    key: str
    """Tells it from the writer's others, and stays as long as it lasts."""
    size_bytes: int
    seen_seconds: float = math.inf
    """`time.monotonic()`, which all processes of a machine share: readings begun later have what of
    it was taken, or given back, in NVML's own figures. Infinite: NVML does not show it yet."""


def encode(promises: Sequence[MemoryPromise]) -> bytes:
    """As a file holds them."""
    return b"".join([_HEAD, *map(_line, promises), _END])


def decode(content: bytes) -> tuple[MemoryPromise, ...]:
    """The reverse; nothing for a text of any other form."""
    if len(content) > MAX_BYTES or not content.startswith(_HEAD) or not content.endswith(_END):
        return ()
    lines = content[len(_HEAD) : -len(_END)].splitlines(keepends=True)
    found = [_LINE.fullmatch(line) for line in lines]
    return tuple(_promise(match) for match in found if match) if all(found) else ()


def _line(p: MemoryPromise) -> bytes:
    seen = "" if math.isinf(p.seen_seconds) else f" {math.ceil(1000 * p.seen_seconds)}"
    return f"{p.uuid} {p.key} {p.size_bytes}{seen}\n".encode()


def _promise(match: re.Match[bytes]) -> MemoryPromise:
    seen = math.inf if match[4] is None else int(match[4]) / 1000
    return MemoryPromise(match[1].decode(), match[2].decode(), int(match[3]), seen)


class PromiseFolder:
    """Shows this sweep's promises, and sees those of others. What of it cannot be is said once, and
    the sweep goes on by NVML alone."""

    def __init__(self, folder: str | None) -> None:
        """None: nothing is shown or seen."""
        self._name = f"{os.getuid()}-{os.getpid()}-{secrets.token_hex(8)}"
        self._shown = encode([])
        self._file: int | None = None
        """Of what is shown, kept open for its lock."""
        self._folder: int | None = None
        self._mute = False
        if folder is not None:
            try:
                self._folder = _open_folder(Path(folder))
            except OSError as error:
                _say(f"{folder} cannot be opened", error)

    def show(self, promises: Sequence[MemoryPromise]) -> None:
        """To all who look from now on, in place of what was shown before. For one thread."""
        content = encode(promises)
        if self._folder is None or self._mute or (content == self._shown and self._is_there):
            return
        try:
            before, self._file = self._file, _replace(self._folder, self._name, content)
        except OSError as error:
            self._mute = True
            self._withdraw()  # what is no longer true would keep others waiting
            _say("a file for that cannot be written", error)
            return
        self._shown = content
        if before is not None:
            os.close(before)  # only now: without a lock it would look like a dead sweep's

    def others(self, begun_seconds: float) -> Elsewhere:
        """What others show now that a reading begun then may have missed; any thread."""
        if self._folder is None:
            return {}
        found: dict[tuple[DeviceId, str], int] = {}
        for name in _names(self._folder):
            if name != self._name:
                found |= missed_promises(
                    decode(_read_of_living(self._folder, name)), name, begun_seconds
                )
        return found

    def close(self) -> None:
        """Nothing is shown any more."""
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
    def _is_there(self) -> bool:
        """Whether what was shown was not swept away, as old files are."""
        if self._file is None:
            return True
        with suppress(OSError):
            there = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            return there.st_ino == os.fstat(self._file).st_ino
        return False


def open_promises(devices: Sequence[DeviceId]) -> PromiseFolder:
    """Of a sweep, or of one who looks, on these devices; to be closed."""
    return PromiseFolder(folder_of(devices, os.environ))


def folder_of(devices: Sequence[DeviceId], environment: Mapping[str, str]) -> str | None:
    """Where sweeps of these devices show their promises; None: where none is a GPU, or
    AUTOML_PROMISES is empty."""
    if all(device.on_host for device in devices):
        return None
    return environment.get(FOLDER_VARIABLE, DEFAULT_FOLDER) or None


def missed_promises(
    promises: Sequence[MemoryPromise], writer: str, begun_seconds: float
) -> Elsewhere:
    """What a reading begun then may have missed of a sweep's promises."""
    found: dict[tuple[DeviceId, str], int] = {}
    for p in promises:
        if begun_seconds <= p.seen_seconds:
            where = (DeviceId(LOCAL_NODE, p.uuid), f"{writer} {p.key}")
            found[where] = max(p.size_bytes, found.get(where, 0))
    return found


def _say(what: str, error: OSError) -> None:
    log.warning("sweeps at once on this machine may overlook each other: %s (%s)", what, error)


def _names(folder: int) -> Sequence[str]:
    """Of the first files in it. Opened anew: threads that share a descriptor share its place."""
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
    """A descriptor of it, made where it is missing. Raises OSError, also for one that is no place
    to meet: a link, or a stranger's in which files of others can be renamed."""
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
    """Put the file in place, locked before anybody can see it; returns its descriptor."""
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


def _read_of_living(folder: int, name: str) -> bytes:
    """What the file holds, empty where its writer has ended; then it is removed, if it is ours."""
    with suppress(OSError):
        for _ in range(_N_TRIES):
            content = _read(folder, name)
            if content is not None:
                return content
    return b""


def _read(folder: int, name: str) -> bytes | None:
    """None: it was replaced while it was read. Opening waits for nobody at a pipe's other end."""
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


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
