"""The shared words: what a trial is, what happens to it, and where it runs.

Every part of the package may import this module; it imports none of them. All values are frozen.
Times are Unix seconds (`time.time()`), sizes are bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

MAX_STEP = 2**53
"""The largest step of a report: what float64, every database and MLflow's charts hold exactly."""

ParamValue: TypeAlias = "int | float | str | bool | None"
Params: TypeAlias = Mapping[str, ParamValue]
SpaceEntry: TypeAlias = Mapping[str, object]
"""A param's values as a search space writes them: `{low: …, high: …}` or `{choices: […]}`."""


class TrialState(enum.Enum):
    """Where a trial stands. INTERRUPTED goes on later."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    PRUNED = "pruned"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the trial never runs again."""
        return self in (TrialState.FINISHED, TrialState.PRUNED, TrialState.FAILED)


class Direction(enum.Enum):
    """Which values of the study's metric are better."""

    minimize = "minimize"
    maximize = "maximize"

    def better(self, a: float, b: float) -> bool:
        """Whether `a` is strictly better than `b`."""
        return a < b if self is Direction.minimize else a > b


class Verdict(enum.Enum):
    """The study's answer to an event: all that travels back into a trial, but for the answer to a
    `Question`."""

    GO_ON = "go on"
    PRUNE = "prune"
    STOP = "stop"


class CheckpointKind(enum.Enum):
    """`last.pt` holds all that is needed to go on; `best.pt` all that is needed to predict."""

    LAST = "last"
    BEST = "best"


def trial_name(number: int) -> str:
    """`trial-00007`: folder of its checkpoints and name of its MLflow run."""
    return f"trial-{number:05d}"


@dataclass(frozen=True)
class TrialSpec:
    """One trial as an executor receives it. Picklable."""

    number: int
    params: Params
    checkpoint_dir: str
    """Folder of `last.pt` and `best.pt`; made by the trial when it first writes."""
    study_seed: int
    entries: Mapping[str, SpaceEntry] = field(default_factory=dict)
    """Of an objective that asks for its params: as it is known to ask for those that are in
    `params`. One that it asks for in this way is answered, and no question."""


# --- where a trial runs -------------------------------------------------------------------------

LOCAL_NODE = "local"
"""The node of a sweep that runs on one machine."""
HOST_UUID = "host"


class DeviceKind(enum.Enum):
    """What trains: a machine's cores and main memory, or a GPU."""

    CPU = "cpu"
    GPU = "gpu"


@dataclass(frozen=True, order=True)
class DeviceId:
    """Address of a device."""

    node: str
    uuid: str
    """`GPU-…` or `MIG-…` as NVML prints it, or `host`."""

    @property
    def kind(self) -> DeviceKind:
        return DeviceKind.CPU if self.uuid == HOST_UUID else DeviceKind.GPU

    @property
    def on_host(self) -> bool:
        return self.kind is DeviceKind.CPU


HOST = DeviceId(LOCAL_NODE, HOST_UUID)
"""This machine's memory and cores."""
ON_CPU = "cpu"
"""The label of a placement there."""


@dataclass(frozen=True, order=True)
class ProcessId:
    """Address of a process."""

    node: str
    pid: int


class RequestSource(enum.Enum):
    """How it is known what memory a trial wants."""

    DECLARED = "declared"
    SEEN = "seen"
    """A trial with the same params was measured."""
    LEARNED = "learned"
    """Its structure, fitted to the trials that were measured."""
    SURVEYED = "surveyed"
    """A survey of the objective, while no trial was measured."""
    ESTIMATED = "estimated"
    """Arithmetic on its params, likewise."""
    UNKNOWN = "unknown"
    PROBED = "probed"
    """Nothing of its own; of trials before it what most of them held: so much is to be free where
    it joins others."""
    RAN_OUT = "ran out"
    """A trial that ran out of memory asks for more than that."""


@dataclass(frozen=True)
class Request:
    """What a trial asks for."""

    memory_bytes: int | None
    """On each of its devices. None: not known; then it gets a GPU to itself, and on the host
    counts by cores only."""
    source: RequestSource = RequestSource.DECLARED
    n_devices: int = 1
    """All of one node, and of one kind."""
    alone: bool = False
    """The last attempt of a trial that ran out of memory: the largest device, to itself."""
    undisturbed: bool = False
    """Only while others hold no more of the device than the least that was seen of them."""
    joins_at_bytes: int | None = None
    """Where its size is not known: what has to be free of a GPU for it to join others there, which
    it is promised then. None: it joins nobody."""
    kinds: frozenset[DeviceKind] = frozenset(DeviceKind)
    """Where it can run at all."""

    def __post_init__(self) -> None:
        assert self.memory_bytes is None or self.memory_bytes >= 0, self
        assert self.joins_at_bytes is None or self.memory_bytes is None, self
        assert self.n_devices >= 1, self
        assert self.kinds, self


@dataclass(frozen=True)
class Work:
    """What a whole trial has to compute, by arithmetic on its params."""

    n_steps: float
    """Optimizer steps."""
    step_flops: float
    """Floating-point operations of one, its share of all evaluations included."""

    def __post_init__(self) -> None:
        assert self.n_steps > 0, self
        assert self.step_flops >= 0, self


UNKNOWN = Request(None, RequestSource.UNKNOWN)
"""Nothing is known of what it wants."""


@dataclass(frozen=True)
class Share:
    """What a placement holds of one device."""

    device: DeviceId
    device_name: str
    reservation_bytes: int


@dataclass(frozen=True)
class Placement:
    """Where an admitted trial runs, and what was reserved for it there: nearly always one share."""

    shares: tuple[Share, ...]
    exclusive: bool = False
    """The trial has its devices to itself (its memory is unknown, or this is its last attempt)."""
    probing: bool = False
    """Its memory is unknown, and it has joined others: no other such may, until it has settled."""

    def __post_init__(self) -> None:
        assert self.shares, "a placement is somewhere"
        assert len({(d.node, d.kind) for d in self.devices}) == 1, f"{self}: of one node and kind"
        assert len(set(self.devices)) == len(self.shares), f"{self}: a device has one share"

    def shrunk_to(self, most_bytes: Sequence[int]) -> Placement:
        """With at most so much of each device, in their order, beside others; its size is
        known then."""
        most = zip(self.shares, most_bytes, strict=True)
        sizes = [min(share.reservation_bytes, size) for share, size in most]
        shares = (replace(s, reservation_bytes=n) for s, n in zip(self.shares, sizes, strict=True))
        return Placement(tuple(shares))

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        return tuple(share.device for share in self.shares)

    @property
    def node(self) -> str:
        return self.shares[0].device.node

    @property
    def kind(self) -> DeviceKind:
        return self.shares[0].device.kind

    @property
    def on_host(self) -> bool:
        return self.shares[0].device.on_host

    @property
    def label(self) -> str:
        """For people and the tag `automl.device`: `cpu`, or each GPU's name and UUID."""
        if self.on_host:
            return ON_CPU
        return ", ".join(f"{share.device_name} {share.device.uuid}" for share in self.shares)


# --- what happens to a trial --------------------------------------------------------------------


@dataclass(frozen=True)
class TrialEvent:
    """Something that happened to a trial, in the order in which it happened."""

    trial: int
    time: float


@dataclass(frozen=True)
class Started(TrialEvent):
    """A trial begins, or goes on after an interruption (then it was started before)."""

    params: Params
    device: str
    """Name of the device for people: `cpu`, or the GPU's name and UUID."""


@dataclass(frozen=True)
class Suggested(TrialEvent):
    """Params that the objective asked for while it ran, beside those that it was started with."""

    params: Params


@dataclass(frozen=True)
class Reported(TrialEvent):
    """Metrics of one step (for the built-in objective: one epoch, counted from 0).

    A step may be told in several parts, each with metrics that those before it lack.
    """

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Tagged(TrialEvent):
    """Something that the objective noted about its trial; a later text of the name replaces it."""

    name: str
    text: str


class LoggedPoint(NamedTuple):
    """A value of a metric that an objective logged through another library."""

    name: str
    value: float
    step: int
    """Below 0 too: libraries take any."""
    time_ms: int
    """Unix time, as the library had it."""


@dataclass(frozen=True)
class Logged(TrialEvent):
    """What an objective logged through another library (MLflow), in one call of it.

    A metric of a step and a param are told once. The study's own metric is `Reported` instead, and
    tags are `Tagged`.
    """

    points: tuple[LoggedPoint, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    """Of its own, beside the trial's."""


@dataclass(frozen=True)
class Checkpointed(TrialEvent):
    """A checkpoint file is complete on disk."""

    step: int
    path: str
    """Relative to the study in its event log, since a study may be moved; absolute before."""
    kind: CheckpointKind


@dataclass(frozen=True)
class MemoryPeak(TrialEvent):
    """The most memory that the trial held so far on the one of its devices where it held most."""

    peak_bytes: int
    n_lanes: int = 1
    """Above 1: what a pack held that this trial was of, with so many at once."""
    allocated_bytes: int = 0
    """The part of it that tensors had; 0: not known."""
    predicted_bytes: int | None = None
    """What was asked for, and how that was known; the sweep notes it, not the trial."""
    source: RequestSource | None = None
    on_each_bytes: tuple[int, ...] = ()
    """Of several devices the most on each, in the placement's order; one has `peak_bytes`."""

    @property
    def by_device(self) -> tuple[int, ...]:
        """The most on each of its devices, in their order."""
        return self.on_each_bytes or (self.peak_bytes,)


@dataclass(frozen=True)
class Hosted(TrialEvent):
    """The process that carries the trial out is known, and its memory is seen there. Not logged."""

    process: ProcessId


@dataclass(frozen=True)
class StillRunning(TrialEvent):
    """A trial that has nothing to report asks whether it may go on. Not logged; in a worker it is
    answered there, by what has come from the sweep."""


@dataclass(frozen=True)
class Outcome(TrialEvent):
    """The last event of one execution of a trial: exactly one of the six below."""

    state: ClassVar[TrialState]
    """Where the trial stands after it."""


@dataclass(frozen=True)
class Finished(Outcome):
    state = TrialState.FINISHED
    value: float


@dataclass(frozen=True)
class Pruned(Outcome):
    """Stopped early because others are better. `value` is its best so far."""

    state = TrialState.PRUNED
    step: int
    value: float


@dataclass(frozen=True)
class TooLarge(Outcome):
    """No device can hold it, which it was seen or declared to want: no failure of its own, and no
    value, whatever it reported, since it can never be trained to its end."""

    state = TrialState.PRUNED
    cause: str
    excess: float
    """log(what it needs / what there is), above 0: the sampler learns from it where memory ends."""
    at_least: bool = False
    """It may be more: it ran out of memory, and nothing tells what it needs."""


@dataclass(frozen=True)
class Interrupted(Outcome):
    """Ended by Ctrl-C, a kill or a dead worker; goes on later from its last checkpoint."""

    state = TrialState.INTERRUPTED
    cause: str
    by_worker_death: bool = False
    """The process died under the trial, or its GPU did: the second such death in one trial fails
    it, unless the devices are seen to have failed."""
    killed: bool = False
    """Somebody killed a program of the trial's; its own process lives."""
    pack_dissolved: bool = False
    """Its pack broke, by no fault of the trial's: it goes on alone."""


@dataclass(frozen=True)
class Failed(Outcome):
    state = TrialState.FAILED
    cause: str
    """One line for people and logs: `ValueError: …`."""
    details: str = ""
    """Traceback or last output, for MLflow."""
    hopeless: bool = False
    """The objective does not fit the config (a param or metric it lacks): no trial can succeed."""


@dataclass(frozen=True)
class OutOfMemory(Outcome):
    """The device had no room; not a failure until nothing larger is left to try."""

    state = TrialState.INTERRUPTED
    cause: str


# --- what happens to a study --------------------------------------------------------------------


@dataclass(frozen=True)
class SweepStarted:
    """A sweep begins or goes on with a study: what the parent run in MLflow is made from."""

    time: float
    study: str
    study_uuid: str
    settings: Mapping[str, str]
    """Flat settings (`training.epochs` → `20`) without credentials; params of the parent run."""


@dataclass(frozen=True)
class SweepEnded:
    """A sweep ends: the study's summary so far. `done` is false when it was interrupted."""

    time: float
    done: bool
    n_by_state: Mapping[TrialState, int]
    best_trial: int | None
    best_value: float | None
    failed: bool = False
    """It stopped because its trials kept failing."""


@dataclass(frozen=True)
class Paced:
    """Steps of training took so long on a kind of device, of a probe or of an execution; of the
    latter what is told last counts."""

    time: float
    kind: DeviceKind
    step_flops: float
    step_seconds: float
    execution: int | None = None
    """Number of its first trial; None: a probe."""


class Interval(NamedTuple):
    """A score, and where it lies with 95 % (a bootstrap over rows)."""

    value: float
    low: float
    high: float


class RowsKind(enum.Enum):
    """Which rows a model is scored on."""

    KEPT = "kept"
    """The study's own test part."""
    GIVEN = "given"
    """A table that came later."""
    VALIDATION = "validation"
    """By which trials were chosen: the score flatters."""

    @property
    def unseen(self) -> bool:
        """Whether no sweep ever saw them."""
        return self is not RowsKind.VALIDATION


class Difference(NamedTuple):
    """By how much a score is above another of the same rows, and whether that is more than chance:
    where it lies with 95 %, of all that are compared together."""

    value: float
    low: float
    high: float
    verdict: str
    """For people: `better`, `worse`, `may be chance`."""


@dataclass(frozen=True)
class Evaluated:
    """Models of the study were scored, all on the same rows."""

    time: float
    kind: RowsKind
    n_rows: int
    digest: str
    """Of the rows: equal ones are the same."""
    trials: tuple[int, ...]
    """Whose models; the best of the study first, which the others are compared with."""
    scores: Mapping[str, Mapping[str, Interval]]
    """Each metric by name (`loss`), of each trial by its name, and of each baseline (`linear`)."""
    differences: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)
    """Likewise, of all but the first trial."""

    @property
    def rows(self) -> str:
        """Which rows, for people."""
        unseen = (
            "no sweep saw" if self.kind.unseen else "of validation, by which trials were chosen"
        )
        return f"{self.n_rows:,} rows {unseen}"


Event: TypeAlias = "TrialEvent | SweepStarted | SweepEnded | Paced | Evaluated"


# --- how a trial is carried out -----------------------------------------------------------------

OnEvent: TypeAlias = Callable[[TrialEvent], Verdict]
"""Takes an event of a trial, in its own thread; returns the verdict known by then."""


OnEvents: TypeAlias = Callable[[Sequence[TrialEvent]], Mapping[int, Verdict]]
"""Takes events of one execution in their order; reports given together are judged together.
Returns the verdicts by trial number; a trial that is not named goes on."""


# --- what a trial asks for while it runs --------------------------------------------------------


@dataclass(frozen=True)
class Suggest:
    """An objective written for Optuna wants a value for a param that its trial has not yet."""

    trial: int
    name: str
    entry: SpaceEntry


@dataclass(frozen=True)
class NotSuggested:
    """A trial came to its end, and its objective never asked for these of its params."""

    trial: int
    names: tuple[str, ...]


Question: TypeAlias = "Suggest | NotSuggested"


@dataclass(frozen=True)
class Given:
    """The value of a param: the same whenever the trial asks again, in another process too."""

    value: ParamValue = None


@dataclass(frozen=True)
class Refused:
    """There is no such value; the text says the rule and the remedy."""

    cause: str


@dataclass(frozen=True)
class Stopping:
    """The sweep stops: the trial is interrupted, and asks again when it goes on."""


Reply: TypeAlias = "Given | Refused | Stopping"


class Line(Protocol):
    """What a running trial asks its sweep. Each call waits for the answer."""

    def ask(self, question: Question) -> Reply:
        """The sweep's answer."""

    def verdict(self, trial: int) -> Verdict:
        """On all that the trial has reported; waited for where a report can end it."""


class Feed(Protocol):
    """Where an executor gets its trials from."""

    n_lanes: int
    """How many trials may run together as one pack; 1: one trial, alone."""

    def next(self) -> TrialSpec | None:
        """The first trial, then another of the same kind, or None when there is none now."""


class AnsweringFeed(Feed, Protocol):
    """A feed that knows what its trials ask for."""

    def answer(self, question: Question) -> Reply:
        """From any thread; waits for the main thread, which alone draws params."""


class Apart(Protocol):
    """Keeps what runs code of the user's apart from what runs in the same process after it."""

    @property
    def spent(self) -> bool:
        """Whether the process is fit for no other trial."""

    def __call__(self) -> AbstractContextManager[None]:
        """Around a trial, or a pack, in its own thread. Raises nothing of its own."""


class Session(Protocol):
    """An objective made ready once in a process, which then trains many trials there."""

    def run(
        self, spec: TrialSpec, placement: Placement, on_event: OnEvent, line: Line | None = None
    ) -> None:
        """Carry out one trial; its last event is an `Outcome`. Raises nothing a trial can cause.

        Without a line it has the params that it begins with, and no others.
        """

    def run_pack(self, feed: Feed, placement: Placement, on_events: OnEvents) -> None:
        """Train up to `feed.n_lanes` trials at a time as one batched model, until none is left.

        Each trial taken from the feed ends with an `Outcome`; those that must go on alone with
        `Interrupted(pack_dissolved=True)`.
        """

    def held_bytes(self) -> Sequence[int]:
        """Memory that this process holds now of each device it sees, in their order, caches
        included; empty where it uses none."""

    @property
    def n_steps(self) -> int:
        """Steps of training that this process has taken so far; any thread."""

    @property
    def programs_bytes(self) -> int:
        """Main memory that programs hold which this process has started; any thread."""

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        """Take no more than that of each device, in their order; 0: no cap. Any thread."""

    def keep_apart(self, apart: Apart) -> None:
        """Enter it from now on around each trial, or pack, that runs code of the user's here; where
        it is spent, none is begun any more."""

    def give_back_memory(self) -> None:
        """Empty caches between trials."""

    def close(self) -> None:
        """No trial runs any more in this process, which goes on."""


@dataclass(frozen=True)
class Entry:
    """What a (possibly other) process needs to train: `module:function` and its argument.

    The function takes `config` and returns a `Session`. Both sides see plain, picklable values, so
    that executors need not know what training is.
    """

    target: str
    config: object = field(default=None)
