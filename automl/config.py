"""Every setting: its name, type, unit, default and check, and nothing else.

Plain dataclasses, because Hydra composes into them (a frozen one cannot be a schema). `cli/` turns
the composed config into a `Config` once; below that nobody sees Hydra. Options that users choose
by name (`sampler=tpe`) are files in `conf/`, which list only what makes them differ from here.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field
from typing import Any

from automl.errors import ConfigError
from automl.trial import Direction

STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_SIZE_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _SIZE_UNITS |= {f"{_letter}iB": 1024**_power, f"{_letter}B": 1000**_power}


def parse_bytes(key: str, text: str) -> int:
    """`512MiB` → 536870912. Raises ConfigError naming `key` for anything that is not a size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2] not in _SIZE_UNITS:
        raise ConfigError(
            f"{key}={text}: a size is a number and a unit, such as 512MiB, 3GiB or 1.5GB."
        )
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def _check(holds: bool, key: str, value: object, rule: str) -> None:
    if not holds:
        raise ConfigError(f"{key}={value}: {rule}")


def _check_positive(key: str, value: float | None) -> None:
    _check(
        value is None or (math.isfinite(value) and value > 0), key, value, "must be greater than 0."
    )


class DataKind(enum.Enum):
    disc = "disc"
    digits = "digits"
    csv = "csv"


class Task(enum.Enum):
    auto = "auto"
    classification = "classification"
    regression = "regression"


class Precision(enum.Enum):
    float32 = "float32"
    float64 = "float64"
    bfloat16 = "bfloat16"


class Growth(enum.Enum):
    """How the width of an MLP goes from layer to layer."""

    constant = "constant"
    doubling = "doubling"


class ModelKind(enum.Enum):
    mlp = "mlp"
    python = "python"


class ObjectiveKind(enum.Enum):
    builtin = "builtin"
    python = "python"


class DevicesKind(enum.Enum):
    auto = "auto"
    host = "host"
    nvml = "nvml"


class ExecutionKind(enum.Enum):
    auto = "auto"
    inline = "inline"
    workers = "workers"


class KeepCheckpoints(enum.Enum):
    """Which checkpoints become artifacts in MLflow."""

    all = "all"
    best = "best"
    none = "none"


@dataclass
class StudyConfig:
    """The study: its name, its goal and where it is kept."""

    name: str | None = None
    """Letters, digits, `.`, `_`, `-`; none: a new study with a made-up name."""
    n_trials: int = 20
    """Trials of the study in all, over every sweep; failed and pruned ones count."""
    timeout_seconds: float | None = None
    """No new trials after this many seconds of one sweep; none: no limit."""
    grace_seconds: float = 30.0
    """How long running trials may take to write a checkpoint after Ctrl-C."""
    metric: str = "val_loss"
    """The reported metric that is optimised."""
    direction: Direction = Direction.minimize
    """Whether small or large values of the metric are good: minimize or maximize."""
    seed: int = 0
    """Seeds the sampler, and with the trial's number every random draw of a trial."""
    storage: str | None = None
    """An Optuna storage URL; none: a journal in the study directory."""
    dir: str = "studies"
    """The folder that holds a directory per study."""
    copy: bool | None = None
    """Asked once of a folder that was moved (false) or copied (true: a study of its own)."""
    enqueue: list[dict[str, Any]] = field(default_factory=list)
    """Params to try first, in this order; params not named are sampled."""

    def __post_init__(self) -> None:
        if self.name is not None:
            _check(
                STUDY_NAME.fullmatch(self.name) is not None,
                "study.name",
                self.name,
                "a study name is 1 to 128 letters, digits, '.', '_' or '-', and starts with a "
                "letter or digit.",
            )
        _check(self.n_trials >= 1, "study.n_trials", self.n_trials, "must be at least 1.")
        _check_positive("study.timeout_seconds", self.timeout_seconds)
        _check(
            math.isfinite(self.grace_seconds) and self.grace_seconds >= 0,
            "study.grace_seconds",
            self.grace_seconds,
            "must be 0 or more.",
        )
        _check(0 <= self.seed < 2**32, "study.seed", self.seed, "must be from 0 to 4294967295.")
        _check(bool(self.dir), "study.dir", self.dir, "must name a folder.")


@dataclass
class DataConfig:
    """The table to learn from, and how it is split."""

    kind: DataKind = DataKind.disc
    path: str | None = None
    """CSV or Parquet file (kind csv)."""
    target: str | None = None
    """Name of the column to predict (kind csv)."""
    task: Task = Task.auto
    """auto: text and integers of at most 20 values are classes, all else is regression."""
    test_path: str | None = None
    """A test table of its own; none: the test part is split off `path`."""
    validation_fraction: float = 0.2
    """Share of the rows that choose among trials."""
    test_fraction: float = 0.2
    """Share of the rows that no sweep ever sees (where `test_path` is none)."""
    split_seed: int = 0
    n_train: int = 1000
    """Training points (kind disc)."""
    n_validation: int = 500
    """Validation points (kind disc)."""

    def __post_init__(self) -> None:
        for key in ("validation_fraction", "test_fraction"):
            value = getattr(self, key)
            _check(0 < value < 1, f"data.{key}", value, "must be between 0 and 1.")
        _check(
            self.validation_fraction + self.test_fraction < 1,
            "data.validation_fraction + data.test_fraction",
            self.validation_fraction + self.test_fraction,
            "must leave rows for training: make one of them smaller.",
        )
        _check(
            0 <= self.split_seed < 2**32,
            "data.split_seed",
            self.split_seed,
            "must be from 0 to 4294967295.",
        )
        _check(self.n_train >= 1, "data.n_train", self.n_train, "must be at least 1.")
        _check(
            self.n_validation >= 1, "data.n_validation", self.n_validation, "must be at least 1."
        )
        if self.kind is DataKind.csv:
            _check(self.path is not None, "data.path", None, "data=csv needs data.path=FILE.")
            _check(
                self.target is not None, "data.target", None, "data=csv needs data.target=COLUMN."
            )


@dataclass
class ModelConfig:
    """The network that the built-in objective trains; what it is built with are params."""

    kind: ModelKind = ModelKind.mlp
    growth: Growth = Growth.constant
    """constant: every hidden layer is `width` wide; doubling: 2, 4, 8, 16, … (no `width`)."""
    target: str | None = None
    """`module:function` (kind python): (n_inputs, n_outputs, **params) → torch.nn.Module."""

    def __post_init__(self) -> None:
        if self.kind is ModelKind.python:
            _check_target("model", self.target)


@dataclass
class ObjectiveConfig:
    """What trains a trial: ours, or a function of the user's."""

    kind: ObjectiveKind = ObjectiveKind.builtin
    target: str | None = None
    """`module:function` (kind python), imported from the current folder or the Python path."""

    def __post_init__(self) -> None:
        if self.kind is ObjectiveKind.python:
            _check_target("objective", self.target)


def _check_target(group: str, target: str | None) -> None:
    _check(
        target is not None and re.fullmatch(r"[\w.]+:[\w.]+", target) is not None,
        f"{group}.target",
        target,
        f"{group}=python needs {group}.target=module:function.",
    )


@dataclass
class TrainingConfig:
    """The built-in training."""

    epochs: int = 20
    """Passes over the training part."""
    precision: Precision = Precision.float32
    """float32, float64, or bfloat16 (float32 weights, computed in bfloat16)."""
    checkpoint_every_seconds: float = 10.0
    """`last.pt` is written at most this often, and always at the end and on interruption."""

    def __post_init__(self) -> None:
        _check(self.epochs >= 1, "training.epochs", self.epochs, "must be at least 1.")
        _check(
            math.isfinite(self.checkpoint_every_seconds) and self.checkpoint_every_seconds >= 0,
            "training.checkpoint_every_seconds",
            self.checkpoint_every_seconds,
            "must be 0 (every epoch) or more.",
        )


@dataclass
class SamplerConfig:
    """What proposes params: one subclass per option of `sampler=`."""


@dataclass
class RandomSamplerConfig(SamplerConfig):
    """Independent draws; needs no argument."""


@dataclass
class GridSamplerConfig(SamplerConfig):
    """Every combination once, in an order shuffled by `study.seed`; ranges need a `step`."""


@dataclass
class QMCSamplerConfig(SamplerConfig):
    """Quasi-Monte Carlo: covers the space more evenly than random draws."""

    qmc_type: str = "sobol"
    scramble: bool = True

    def __post_init__(self) -> None:
        _check(
            self.qmc_type in ("sobol", "halton"),
            "sampler.qmc_type",
            self.qmc_type,
            "must be sobol or halton.",
        )


@dataclass
class TPESamplerConfig(SamplerConfig):
    """Tree-structured Parzen estimator (Bergstra et al., 2011): learns from finished trials."""

    n_startup_trials: int = 10
    """Random trials before the estimator is used."""
    n_ei_candidates: int = 24
    """Candidates drawn per proposal."""
    prior_weight: float = 1.0
    consider_magic_clip: bool = True
    consider_endpoints: bool = False
    multivariate: bool = True
    """Params are modelled together."""
    group: bool = False
    """Params that occur together are modelled together (for spaces with `when`)."""
    constant_liar: bool = True
    """Running trials count as bad ones, so that trials side by side differ."""

    def __post_init__(self) -> None:
        for key in ("n_startup_trials", "n_ei_candidates"):
            value = getattr(self, key)
            _check(value >= 1, f"sampler.{key}", value, "must be at least 1.")
        _check_positive("sampler.prior_weight", self.prior_weight)
        _check(
            self.multivariate or not self.group,
            "sampler.group",
            self.group,
            "needs sampler.multivariate=true.",
        )


@dataclass
class PrunerConfig:
    """What stops bad trials early: one subclass per option of `pruner=`."""


@dataclass
class NoPrunerConfig(PrunerConfig):
    """Every trial trains to its end."""


@dataclass
class MedianPrunerConfig(PrunerConfig):
    """Stops a trial whose best value so far is worse than the median at the same step."""

    n_startup_trials: int = 5
    """No pruning before this many trials have reported the step."""
    n_warmup_steps: int = 2
    """No pruning before this step."""
    interval_steps: int = 1
    """Trials are judged every so many steps."""

    def __post_init__(self) -> None:
        _check(self.n_startup_trials >= 1, "pruner.n_startup_trials", self.n_startup_trials, "≥ 1.")
        _check(self.n_warmup_steps >= 0, "pruner.n_warmup_steps", self.n_warmup_steps, "≥ 0.")
        _check(self.interval_steps >= 1, "pruner.interval_steps", self.interval_steps, "≥ 1.")


@dataclass
class HalvingPrunerConfig(PrunerConfig):
    """Asynchronous successive halving (Li et al., 2020): of the trials at a rung, 1/factor go on.

    Rungs are at `max_steps / factor^k` reported steps, rounded up, as in Hyperband (Li et al.,
    2018); where `max_steps` is not known, at `min_steps · factor^k`. A trial is judged against the
    values that all trials, running ones too, reported at its rung.
    """

    min_steps: int = 2
    """No rung stands before this many steps."""
    max_steps: int | None = None
    """Steps of a trial that is not stopped; none: training.epochs, and for a function of your own
    not known."""
    factor: int = 3
    """Of the trials that reach a rung, one in `factor` goes on."""
    min_trials: int = 4
    """A rung judges nobody before this many trials have reached it."""

    def __post_init__(self) -> None:
        _check(self.min_steps >= 1, "pruner.min_steps", self.min_steps, "must be at least 1.")
        _check(
            self.max_steps is None or self.max_steps >= 1,
            "pruner.max_steps",
            self.max_steps,
            "must be at least 1.",
        )
        _check(self.factor >= 2, "pruner.factor", self.factor, "must be at least 2.")
        _check(self.min_trials >= 1, "pruner.min_trials", self.min_trials, "must be at least 1.")


@dataclass
class DevicesConfig:
    """Which devices trials may use, and how often they are looked at."""

    kind: DevicesKind = DevicesKind.auto
    """auto: the GPUs that both NVML and torch see, else the host; nvml: NVML's word alone."""
    only: list[str] = field(default_factory=list)
    """UUIDs, or their beginnings; empty: all."""
    interval_seconds: float = 0.5
    """Time from one reading to the next."""

    def __post_init__(self) -> None:
        _check_positive("devices.interval_seconds", self.interval_seconds)


@dataclass
class AdmissionConfig:
    """When a trial may start."""

    request: str | None = None
    """Memory that each trial takes on its device, such as 3GiB; none: estimated."""
    headroom: str = "256MiB"
    """Memory kept free on every device."""
    max_concurrent_trials: int | None = None
    """Trials at once over all devices; none: one per core of the machine."""
    stale_seconds: float = 5.0
    """A reading older than this admits nothing."""

    def __post_init__(self) -> None:
        if self.request is not None:
            _check(
                parse_bytes("admission.request", self.request) > 0,
                "admission.request",
                self.request,
                "must be greater than 0.",
            )
        parse_bytes("admission.headroom", self.headroom)
        _check(
            self.max_concurrent_trials is None or self.max_concurrent_trials >= 1,
            "admission.max_concurrent_trials",
            self.max_concurrent_trials,
            "must be at least 1.",
        )
        _check_positive("admission.stale_seconds", self.stale_seconds)

    @property
    def request_bytes(self) -> int | None:
        return None if self.request is None else parse_bytes("admission.request", self.request)

    @property
    def headroom_bytes(self) -> int:
        return parse_bytes("admission.headroom", self.headroom)


@dataclass
class ExecutionConfig:
    """In which thread or process trials run."""

    kind: ExecutionKind = ExecutionKind.auto
    """auto: workers."""
    pack: Any = "auto"
    """Small trials of one shape train as one batched model: auto, off, or the most in a pack."""
    threads_per_trial: int = 1
    """torch's threads in a trial; by default as many trials at once as the cores then allow."""
    trial_timeout_seconds: float | None = None
    """A trial that takes longer has failed, others of its pack go on alone (workers only); none: no
    limit."""
    silence_timeout_seconds: float | None = None
    """A trial that reports nothing for so long has failed (workers only); none: no limit."""
    recycle_after_trials: int = 1000
    """A worker process is replaced after this many trials."""
    recycle_growth: str = "2GiB"
    """A worker process is replaced when its memory grew by this much and stayed."""

    def __post_init__(self) -> None:
        if self.pack is False or self.pack == 1:  # YAML reads a bare `off` as false
            self.pack = "off"
        whole = isinstance(self.pack, int) and not isinstance(self.pack, bool)
        _check(
            self.pack in ("auto", "off") or (whole and self.pack >= 2),
            "execution.pack",
            self.pack,
            "must be auto, off, or the most trials in a pack (a whole number from 2).",
        )
        for key in ("threads_per_trial", "recycle_after_trials"):
            _check(getattr(self, key) >= 1, f"execution.{key}", getattr(self, key), "must be ≥ 1.")
        for key in ("trial_timeout_seconds", "silence_timeout_seconds"):
            value = getattr(self, key)
            _check_positive(f"execution.{key}", value)
            _check(
                value is None or self.kind is not ExecutionKind.inline,
                f"execution.{key}",
                value,
                "a trial in a thread cannot be ended; use execution=workers.",
            )
        parse_bytes("execution.recycle_growth", self.recycle_growth)

    @property
    def recycle_growth_bytes(self) -> int:
        return parse_bytes("execution.recycle_growth", self.recycle_growth)


@dataclass
class TrackingConfig:
    """Where results are shown."""

    uri: str | None = None
    """MLflow tracking URI; none: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."""
    checkpoints: KeepCheckpoints = KeepCheckpoints.all
    """Which checkpoints become artifacts in MLflow: all (last and best), best, or none."""


@dataclass
class UIConfig:
    """The MLflow UI that `ui` starts, on loopback."""

    port: int = 5000

    def __post_init__(self) -> None:
        _check(1 <= self.port <= 65535, "ui.port", self.port, "must be from 1 to 65535.")


@dataclass
class Config:
    """One sweep, composed and checked."""

    study: StudyConfig = field(default_factory=StudyConfig)
    space: dict[str, Any] = field(default_factory=dict)
    """A search space entry per param; see `search/space.py` for its forms."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    sampler: SamplerConfig = field(default_factory=TPESamplerConfig)
    pruner: PrunerConfig = field(default_factory=HalvingPrunerConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    ui: UIConfig = field(default_factory=UIConfig)


SAMPLERS: dict[str, type[SamplerConfig]] = {
    "random": RandomSamplerConfig,
    "grid": GridSamplerConfig,
    "qmc": QMCSamplerConfig,
    "tpe": TPESamplerConfig,
}
PRUNERS: dict[str, type[PrunerConfig]] = {
    "none": NoPrunerConfig,
    "median": MedianPrunerConfig,
    "halving": HalvingPrunerConfig,
}
