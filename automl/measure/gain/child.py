"""The work of `gain`'s process, which `automl.execution.child_calls.stream_confined` starts.

Trials run in the session that a worker has, with reports and checkpoints. They only end early, and
their results go nowhere. For comparison, data can stay in main memory and go to the device batch by
batch, as loaders do with data that is not kept on the device.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from automl.config import ObjectiveKind, Precision
from automl.measure.gain.gain_messages import GainSetup, TrainingTiming, TrainingWay
from automl.measure.gain.watch import (
    ExecutionWatch,
    TimedExecution,
    device_clock,
    estimate_trial_seconds,
    measured_step_seconds,
    whole_trial_seconds,
)
from automl.models.networks.network_estimator import NetworkEstimator
from automl.models.networks.network_family import NetworkFamily, fill_from_settings
from automl.models.networks.tensors import (
    DataTensors,
    Pair,
    PartTensors,
    TensorSource,
    TrainingRows,
)
from automl.objectives.training_session import TrainingSession, open_objective
from automl.record.texts import fit_line
from automl.trial import TrialSpec, single_event_handler


class DataCopiedPerStep(TensorSource):
    """A `TensorSource` whose training rows stay in main memory: each step copies its own.

    It replaces `DataOnDevices` in a timing of trials that train alone.
    """

    def __init__(self, data: TensorSource) -> None:
        super().__init__()
        self._data = data

    def copy_to(self, device: str, dtype: torch.dtype) -> DataTensors:
        raise ValueError("its training rows are copied step by step, and not kept on the device")

    def open_rows(self, device: str, dtype: torch.dtype) -> AbstractContextManager[TrainingRows]:
        on_host, on_device = self._data.tensors("cpu", dtype), self._data.tensors(device, dtype)
        return nullcontext(RowsCopiedPerStep(HostRows(on_host.train, device), on_device.validation))


@dataclass(frozen=True)
class HostRows:
    """Training rows in main memory. Each batch is copied to the device, from pageable memory."""

    part: PartTensors
    device: str

    def __len__(self) -> int:
        return len(self.part)

    def batches(self, order: torch.Tensor, n_rows: int, seed: int) -> Iterator[Pair]:
        return self._copied(self.part.batches(order, n_rows, seed))

    def pieces(self, n_rows: int) -> Iterator[Pair]:
        return self._copied(self.part.pieces(n_rows))

    def _copied(self, batches: Iterator[Pair]) -> Iterator[Pair]:
        for x, y in batches:
            yield x.to(self.device, copy=True), y.to(self.device, copy=True)


@dataclass(frozen=True)
class RowsCopiedPerStep:
    """The rows of a trial whose training part is copied step by step."""

    train: HostRows
    validation: PartTensors


_N_ROUNDS = 2
"""The turns of each way. Turns spread the load of other programs evenly over all ways."""
_N_WHOLE = 3
"""The least number of whole trials whose time is used as it is; the first one is slow."""
_BF16_OF_CPUS = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16")
"""torch's names for instructions that multiply bfloat16: x86 (Intel SDM), ARMv8.6."""


def time_ways(setup: GainSetup) -> Iterator[TrainingTiming]:
    """Yield the timing of each way, in each round anew; the newest timing of a way counts.

    The call changes torch's number of threads, so the process must not train anything else. Raises
    ConfigError if a user's function cannot be loaded.
    """
    probes = [_WayProbe(setup, way) for way in setup.ways]
    n_rounds = _N_ROUNDS if _cuts(setup) else 1  # each call of a user's function reads its data
    ends = time.perf_counter() + setup.seconds
    turns = [probe for _ in range(n_rounds) for probe in probes]
    for n, probe in enumerate(turns):
        probe.run(max(0.0, ends - time.perf_counter()) / (len(turns) - n))
        yield probe.timing()


class _WayProbe:
    """Times one way of training, turn by turn."""

    def __init__(self, setup: GainSetup, way: TrainingWay) -> None:
        self._setup, self._way = setup, way
        self._session: TrainingSession | None = None
        self._calls: list[TimedExecution] = []
        self._n_calls = 0
        self._trouble: str | None = None
        self._per_report = False

    def run(self, seconds: float) -> None:
        """Run executions for this many seconds, at least one unless an earlier one failed."""
        torch.set_num_threads(self._way.n_threads)
        if self._session is None:
            self._open()
            if _cuts(self._setup) and self._trouble is None:
                self._execute(0.0, least_steps=1)  # a first run sets libraries up, untimed
        first, ends = True, time.perf_counter() + seconds
        while self._trouble is None and (first or time.perf_counter() < ends):
            first = False
            watch = self._execute(max(0.0, ends - time.perf_counter()))
            self._calls.append(watch.call())
            self._per_report |= watch.per_report

    def timing(self) -> TrainingTiming:
        step, trial = measured_step_seconds(self._calls), self._trial_seconds()
        if step is None:
            return TrainingTiming(
                self._way, trouble=self._trouble or "it took fewer than two steps"
            )
        return TrainingTiming(
            self._way,
            step / self._way.n_lanes,
            None if trial is None else trial / self._way.n_lanes,
            emulated=self._way.precision is Precision.bfloat16 and not _has_bf16(self._device),
            per_report=self._per_report,
        )

    @property
    def _device(self) -> str:
        return "cpu" if self._setup.placement.on_host else "cuda:0"

    def _trial_seconds(self) -> float | None:
        """Return the seconds of a trial: as measured if several were whole, else estimated."""
        plan, dataset = self._setup.session.plan, self._setup.session.dataset
        enough = sum(call.whole for call in self._calls) >= _N_WHOLE
        if enough or dataset is None or not isinstance(plan.family, NetworkFamily):
            return whole_trial_seconds(self._calls)
        n_train = len(dataset.train)
        params = plan.family.params(fill_from_settings(self._setup.trial_params, plan.training))
        n_rows = min(params.batch_size * params.accumulate_steps, n_train)
        return estimate_trial_seconds(self._calls, plan.training.n_epochs, -(-n_train // n_rows))

    def _open(self) -> None:
        session = self._setup.session
        training = replace(session.plan.training, precision=self._way.precision)
        plan = replace(session.plan, training=training)
        objective = open_objective(replace(session, plan=plan))
        if self._way.copies:
            assert isinstance(objective, NetworkEstimator), "only it is timed with copies"
            objective.data = DataCopiedPerStep(objective.data)
        self._session = TrainingSession(plan, objective)
        if not self._setup.placement.on_host and not torch.cuda.is_available():
            self._trouble = f"torch {torch.__version__} cannot use it"
        elif self._way.n_lanes > 1 and isinstance(objective, NetworkEstimator):
            self._try_pack(objective)

    def _try_pack(self, estimator: NetworkEstimator) -> None:
        """Note as trouble if the trials cannot train as a pack.

        The session would else train them one by one, and only log that.
        """
        plan, on_host = self._setup.session.plan, self._setup.placement.on_host
        key = plan.pack_key(self._setup.trial_params, on_host=on_host)
        assert key is not None, "only what has a key is timed in packs"
        try:
            estimator.open_pack(key, self._device)
        except Exception as error:  # noqa: BLE001  any exception: the trials must train alone
            self._trouble = fit_line(f"not together: {type(error).__name__}: {error}", 200)

    def _execute(self, seconds: float, *, least_steps: int = 2) -> ExecutionWatch:
        """Run a trial or a pack from its start, until the time is up or it has ended."""
        assert self._session is not None
        folder = Path(self._setup.folder) / f"call-{self._n_calls}"
        self._n_calls += 1
        feed = _EqualTrialsFeed(self._setup, self._way.n_lanes, folder)
        watch = ExecutionWatch(
            device_clock(self._device), seconds, cuts=_cuts(self._setup), least_steps=least_steps
        )
        with watch.watching():
            if self._way.n_lanes == 1:
                self._session.run(
                    feed.spec(0), self._setup.placement, single_event_handler(watch.on_events)
                )
            else:
                self._session.run_pack(feed, self._setup.placement, watch.on_events)
        shutil.rmtree(folder, ignore_errors=True)
        self._trouble = self._trouble or watch.trouble
        return watch


class _EqualTrialsFeed:
    """A `TrialSource` of equal trials, one for each lane of a pack."""

    def __init__(self, setup: GainSetup, n_lanes: int, folder: Path) -> None:
        self.n_lanes = n_lanes
        self._setup, self._folder = setup, folder
        self._n_fed = 0

    def next(self) -> TrialSpec | None:
        if self._n_fed == self.n_lanes:
            return None
        self._n_fed += 1
        return self.spec(self._n_fed - 1)

    def spec(self, number: int) -> TrialSpec:
        return TrialSpec(number, self._setup.trial_params, str(self._folder / str(number)), 0)


def _cuts(setup: GainSetup) -> bool:
    """Return whether the training is built-in, so that its passes may be cut short."""
    return setup.session.plan.objective.kind is ObjectiveKind.builtin


def _has_bf16(device: str) -> bool:
    if device == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return any(capabilities.get(name) for name in _BF16_OF_CPUS)
    native: bool = torch.cuda.is_bf16_supported(including_emulation=False)
    return native
