"""Several readers as one."""

from __future__ import annotations

import pytest

from automl.devices.device_reader import CompositeReader
from automl.devices.device_reading import DeviceReader, DeviceReadError, DeviceSnapshot
from automl.trial import DeviceId
from tests.places import device_id


class Node(DeviceReader):
    """A machine elsewhere, with one GPU."""

    def __init__(self, name: str) -> None:
        self.device = DeviceSnapshot(device_id(f"{name}/GPU-a"), "sim", 2**30, 2**30)
        self.error: str | None = None
        self.closed = False

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        return (self.device.address,)

    def read(self) -> tuple[DeviceSnapshot, ...]:
        if self.error is not None:
            raise DeviceReadError(self.error)
        return (self.device,)

    def close(self) -> None:
        self.closed = True
        if self.error is not None:
            raise OSError(self.error)


def test_their_devices_are_one_list() -> None:
    one, two = Node("node-1"), Node("node-2")
    assert CompositeReader([one, two]).read() == (one.device, two.device)
    addresses = (one.device.address, two.device.address)
    assert CompositeReader([one, two]).addresses == addresses


def test_one_that_fails_is_left_out_until_it_answers_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = Node("node-1"), Node("node-2")
    reader = CompositeReader([one, two])
    two.error = "node-2 does not answer"
    assert reader.read() == reader.read() == (one.device,)
    assert [m.endswith("no new trial: node-2 does not answer") for m in caplog.messages] == [True]
    two.error = None
    assert reader.read() == (one.device, two.device)


def test_none_that_answers_is_a_reading_that_failed() -> None:
    one, two = Node("node-1"), Node("node-2")
    one.error, two.error = "one is gone", "two is gone"
    with pytest.raises(DeviceReadError, match="one is gone; two is gone"):
        CompositeReader([one, two]).read()


def test_closing_closes_each_whatever_the_others_do() -> None:
    one, two = Node("node-1"), Node("node-2")
    two.error = "hangs"
    with pytest.raises(OSError, match="hangs"):
        CompositeReader([one, two]).close()
    assert (one.closed, two.closed) == (True, True)
