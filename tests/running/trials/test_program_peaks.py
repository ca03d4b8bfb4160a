"""What programs hold of GPUs, by readings: of their processes, else of the device."""

from __future__ import annotations

from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot
from automl.running.trials.program_peaks import ProgramPeaks
from automl.trial import DeviceShare, MemoryPeakMeasured, Placement, ProcessHosted
from tests.places import device_id, placed, process_id

GIB = 2**30
A, B = device_id("GPU-a"), device_id("GPU-b")


def hosted(trial: int, pid: int) -> ProcessHosted:
    return ProcessHosted(trial, 0.0, process_id(pid))


class Told:
    """The peaks of one trial."""

    def __init__(self) -> None:
        self.peaks: list[MemoryPeakMeasured] = []

    def __call__(self, peak: MemoryPeakMeasured) -> None:
        self.peaks.append(peak)

    @property
    def sizes(self) -> list[int]:
        return [peak.peak_bytes for peak in self.peaks]


def reading(free_gib: float, *held: DeviceProcess, other_gib: float = 16) -> DeviceReading:
    both = ((A, free_gib, held), (B, other_gib, ()))
    return DeviceReading(
        0.0,
        tuple(
            DeviceSnapshot(device, "a GPU", 16 * GIB, int(free * GIB), processes=processes)
            for device, free, processes in both
        ),
    )


def process(pid: int, gib: float, started_by: int | None = None) -> DeviceProcess:
    return DeviceProcess(pid, int(gib * GIB), started_by=started_by)


def test_its_processes_count_and_growth_is_told_again() -> None:
    peaks, told = ProgramPeaks(), Told()
    peaks.begin(7, hosted(7, 10), placed("GPU-a", 1), told)
    stranger = process(99, 5)
    peaks.read(reading(11, stranger))
    peaks.read(reading(9, stranger, process(11, 1, started_by=10), process(12, 1, started_by=10)))
    peaks.read(reading(9, stranger, process(11, 2.01, started_by=10)))
    peaks.read(reading(8, stranger, process(11, 3, started_by=10)))
    assert told.sizes == [2 * GIB, 3 * GIB]
    assert {peak.trial for peak in told.peaks} == {7}


def test_where_nobody_is_named_the_device_tells_what_it_lost() -> None:
    peaks, told = ProgramPeaks(), Told()
    peaks.read(reading(15))
    peaks.begin(7, hosted(7, 10), placed("GPU-a", 1), told)
    peaks.read(reading(12, DeviceProcess(3)))
    assert told.sizes == [3 * GIB]


def test_of_two_programs_on_one_device_neither_has_lost_it() -> None:
    peaks, told = ProgramPeaks(), Told()
    peaks.read(reading(15))
    peaks.begin(7, hosted(7, 10), placed("GPU-a", 1), told)
    peaks.begin(8, hosted(8, 20), placed("GPU-a", 1), told)
    peaks.read(reading(12))
    assert told.sizes == []


def test_each_of_several_devices_is_told() -> None:
    peaks, told = ProgramPeaks(), Told()
    peaks.read(reading(15, other_gib=16))
    both = Placement((DeviceShare(A, "a GPU", 1), DeviceShare(B, "a GPU", 1)))
    peaks.begin(7, hosted(7, 10), both, told)
    peaks.read(reading(12, other_gib=14))
    assert [peak.on_each_bytes for peak in told.peaks] == [(3 * GIB, 2 * GIB)]


def test_nothing_is_told_after_its_end() -> None:
    peaks, told = ProgramPeaks(), Told()
    peaks.begin(7, hosted(7, 10), placed("GPU-a", 1), told)
    peaks.end(7)
    peaks.read(reading(9, process(11, 2, started_by=10)))
    assert told.sizes == []
