"""Lines of JSON that carry a checksum, so that a flipped bit is found where it is.

`{"n":1}` becomes `{"n":1,"crc":"…"}`, which whoever knows nothing of it reads as before: the key is
one more. A line without one (of an earlier version, of another program) is taken as it is.
"""

from __future__ import annotations

import zlib

_SEAL = b',"crc":"%08x"}'
_N_BYTES = len(_SEAL % 0)
_BEFORE, _AFTER = b',"crc":"', b'"}'


def seal(line: bytes) -> bytes:
    """An object on one line of JSON, with its checksum as the last key."""
    body = line[:-1]
    return body + _SEAL % zlib.crc32(body)


def is_damaged(line: bytes) -> bool:
    """Whether the line (without its newline) carries a checksum of something else."""
    if line.endswith(_SEAL % zlib.crc32(line[:-_N_BYTES])):
        return False
    end = line[-_N_BYTES:]
    return end.startswith(_BEFORE) and end.endswith(_AFTER)
