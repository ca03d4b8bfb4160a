"""Several readers as one: the devices of each, one list."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack

from automl.devices.device import DeviceReader, DeviceReadError, DeviceSnapshot
from automl.trial import DeviceId

log = logging.getLogger(__name__)


class CompositeReader(DeviceReader):
    """Reads what each of its readers reads; those that fail are left out until they answer."""

    def __init__(self, readers: Sequence[DeviceReader]) -> None:
        self._readers = tuple(readers)
        self._failing: dict[DeviceReader, str] = {}

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        return tuple(address for reader in self._readers for address in reader.addresses)

    def read(self) -> tuple[DeviceSnapshot, ...]:
        """Raises DeviceReadError where none of them can be read."""
        found: list[DeviceSnapshot] = []
        errors = []
        for reader in self._readers:
            try:
                found += reader.read()
                self._failing.pop(reader, None)
            except DeviceReadError as error:
                errors.append(str(error))
                self._warn(reader, str(error))
        if not found:
            raise DeviceReadError("; ".join(errors))
        return tuple(found)

    def close(self) -> None:
        """Close each, whatever the others do."""
        with ExitStack() as stack:
            for reader in self._readers:
                stack.callback(reader.close)

    def _warn(self, reader: DeviceReader, error: str) -> None:
        """Each cause once, as readings come every second."""
        if self._failing.get(reader) != error:
            self._failing[reader] = error
            log.warning("some devices cannot be read, and get no new trial: %s", error)
