"""Settings of the study and of tracking: its name, goal and end, where it is kept, and what shows
its results."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

from automl.config.checks import (
    NO_SETTING,
    check_positive,
    check_setting,
    checker,
    is_function_target,
    parse_bytes,
    parse_limit,
)
from automl.config.metrics import JUDGED_PREFIX, METRIC_OF_LOSS, METRICS_OF_TASK
from automl.config.setting import setting
from automl.trial import DEFAULT_METRIC, Direction, MetricLimit, StudyMetric, StudyMetrics

STUDY_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NOT_IN_A_STUDY_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_SECRET = re.compile("key|secret|token|password", re.IGNORECASE)


def study_name_of(text: str) -> str:
    """Return the study name that is nearest to another tool's name of a study; empty: none is."""
    return _NOT_IN_A_STUDY_NAME.sub("-", text).strip("-._")[:128]


LIMIT_PREFIX = "study.constraints."


def check_study_name(key: str, name: str | None) -> None:
    """Raise ConfigError naming `key` for a text that is no study's name; None is allowed."""
    check_setting(
        name is None or STUDY_NAME_PATTERN.fullmatch(name) is not None,
        key,
        name,
        "a study name is 1 to 128 letters, digits, '.', '_' or '-', and starts with a letter or "
        "digit.",
    )


DEFAULT_N_TRIALS = 20
AUTO_FREE_SPACE = "1GiB"
"""What `study.min_free_space=auto` becomes: some studies of small models fit in it."""
UNLIMITED_N_TRIALS = 100_000
"""Number of trials of a study that only a time limit ends."""


class AutoSetting(enum.Enum):
    """Whether a sweep does something by itself, where its setting says that it suits."""

    auto = "auto"
    none = "none"


class Finish(enum.Enum):
    """A part of what a sweep over several families ends with."""

    ensemble = "ensemble"
    refit = "refit"
    plots = "plots"


def is_shared_storage(url: str) -> bool:
    """Return whether a storage is one that sweeps share; `postgresql+DRIVER://` is Optuna's own
    storage, for one sweep."""
    return url.startswith(("postgresql://", "postgres://"))


@dataclass
class StudyConfig:
    """The study: its name, its goal, its end, and the places where it is kept."""

    name: str | None = setting("all", None)
    """Letters, digits, `.`, `_`, `-`; auto: a new study with a made-up name."""
    n_trials: int | None = setting("all", None)
    """Trials of the study in all, over every sweep; failed and pruned ones count. auto: 20, or,
    with model=auto on a table (data=csv) and a time limit, as many as it allows."""
    timeout_seconds: float | None = setting("all", None)
    """No new trials start after this many seconds of one sweep, its loading included. If trials
    choose the family, running trials are stopped before, once one has finished, so that the
    ensemble is made in time, or some seconds later on a busy machine; trials get half of it at
    least. none: no limit."""
    grace_seconds: float = setting("few", 30.0)
    """Seconds that running trials have to write a checkpoint after Ctrl-C, or MLflow to take the
    rest after the last trial; after timeout_seconds at most 2 s, or 5 % of timeout_seconds."""
    metric: Any = setting("all", DEFAULT_METRIC)
    """The reported metric that is optimised, or a list of several: [val_error, latency_ms]. The
    first one leads: it chooses the report of a trial that counts. Of a table also a function of
    your own, costs.py:my_cost, called as `my_cost(y_true, y_predicted)`."""
    metric_function: str | None = setting("nobody", None)
    """Set by `study.metric` itself, of a table: `module:function` or `file.py:function` if the
    metric is a function of the user's; of one that was called from Python, its name."""
    metric_parts: list[str] = setting("nobody", factory=list)
    """`NAME=DIGEST` of each part of a function called from Python, when the study began."""
    direction: Any = setting("some", None)
    """Whether small or large values of the metric are good: minimize or maximize; for several
    metrics a list in their order, or by name {val_auc: maximize}. auto: by the name of a metric of
    the built-in training (val_auc: maximize), else minimize."""
    constraints: dict[str, Any] = setting("some", factory=dict)
    """The largest value of a metric that a trial may have, such as {model_bytes: 5MiB}; trials
    beyond it are worse than all within."""
    stop_value: float | None = setting("some", None)
    """No new trial starts once the metric of a trial, running ones included, is this good:
    at most this to minimize, at least this to maximize. none: all of n_trials start."""
    stop_gain: float | None = setting("few", None)
    """No new trial starts once as many trials again as have ended are expected to improve the
    metric by less than this, in its own unit; from 20 trials on. none: all of n_trials start."""
    seed: int = setting("some", 0)
    """Seeds the sampler, and with the trial's number every random draw of a trial."""
    min_free_space: str | None = setting("few", "auto")
    """Free space of the study's disk, such as 10GiB, below which no new trial starts. auto: 1GiB;
    none: trials start until the disk is full."""
    storage: str | None = setting("some", None)
    """none: a journal in the study directory; postgresql://…: a study that sweeps on several
    machines work on together, each by the same command; else an Optuna storage URL."""
    dir: str = setting("some", "studies")
    """The folder that holds a directory per study."""
    keep_best: int | None = setting("some", None)
    """Number of best trials that keep their checkpoints and program files, here and in MLflow;
    those of other trials are removed when they have ended. none: all keep them."""
    checkpoint_copies: str | None = setting("few", None)
    """A place that trials' checkpoints are copied to, so that other machines go on from them:
    s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH; credentials are each machine's own."""
    copy: bool | None = field(default=None, metadata=NO_SETTING)
    """The argument `copy` of the command: the folder was moved (false) or copied (true: a study of
    its own); none: it is not given."""
    relative_to: str | None = setting("nobody", None)
    """Set by a sweep itself: the folder that relative paths of the stored settings count from."""
    began_with: str | None = setting("nobody", None)
    """Set by `from=`: the Optuna study with whose trials the study begins."""
    n_edits: int = setting("nobody", 0)
    """Set by a sweep itself: how many edits of a shared study the stored settings have."""
    repeats: int = setting("some", 1)
    """Trainings of each trial, each with a seed of its own. The trial's value is their mean."""
    enqueue: list[dict[str, Any]] = setting("some", factory=list)
    """Params to try first, in this order; params not named are sampled."""
    warm_from: list[str] = setting("some", factory=list)
    """Names of earlier studies in study.dir, or addresses of Optuna's (sqlite:///old.db:NAME):
    their best points are tried after those of study.enqueue, and the sampler learns from their
    trials."""

    portfolio: AutoSetting = setting("option", AutoSetting.auto)
    """auto: params that did well on many tables go first, where the model has such; none: they do
    not."""
    finish: Any = setting("some", "auto")
    """What a sweep over several families (model=auto) ends with: a list of ensemble (the best mean
    of its models, `ensemble.pt`), refit (of one hold-out of a table: the members trained again on
    all rows but the test part, as `refit` does) and plots (what the ensemble goes by: columns that
    matter, errors by class, calibration; after a minute or more as pictures in MLflow, too). auto:
    all three; none: nothing."""

    def __post_init__(self) -> None:
        check = checker("study", self)
        check_study_name("study.name", self.name)
        self._check_metrics()
        check("n_trials", self.n_trials is None or self.n_trials >= 1, "must be at least 1.")
        check_positive("study.timeout_seconds", self.timeout_seconds)
        check("grace_seconds", 0 <= self.grace_seconds < math.inf, "must be 0 or more.")
        is_number = self.stop_value is None or math.isfinite(self.stop_value)
        check("stop_value", is_number, "must be a finite number.")
        check_positive("study.stop_gain", self.stop_gain)
        check("seed", 0 <= self.seed < 2**32, "must be from 0 to 4294967295.")
        check("repeats", self.repeats >= 1, "must be at least 1: 1 trains each trial once.")
        check("dir", bool(self.dir), "must name a folder.")
        check(
            "warm_from",
            not (self.warm_from and self.shared),
            "machines that share a study do not share the folders of earlier ones. Leave it out, "
            "and name their best points: study.enqueue=[{lr: 0.01}].",
        )
        self._check_finish()
        check(
            "began_with",
            not (self.began_with and self.shared),
            "machines that share a study do not share the file of another. Leave study.storage "
            "out, or name the best points of that study: study.enqueue=[{lr: 0.01}].",
        )
        check("min_free_space", self.min_free_bytes != 0, "must be greater than 0.")
        is_count = self.keep_best is None or self.keep_best >= 1
        check("keep_best", is_count, "must be at least 1.")
        self._check_checkpoint_copies()

    def _check_metrics(self) -> None:
        """Check the metrics, and bring the settings into one form: one metric is no list."""
        names = self.metric if isinstance(self.metric, list | tuple) else [self.metric]
        rule = "must be the name of a metric, or a list of different ones: [val_error, latency_ms]."
        are_texts = bool(names) and all(isinstance(name, str) and name for name in names)
        is_list = are_texts and len({*names}) == len(names)
        check_setting(is_list, "study.metric", self.metric, rule)
        separated = len(names) > 1 and next((name for name in names if "," in name), None)
        rule = "a metric of several has no comma in its name."
        check_setting(not separated, "study.metric", separated, rule)
        self.metric = list(names) if len(names) > 1 else names[0]
        self.direction = _directions(names, self.direction)
        for name, value in self.constraints.items():
            limit = parse_limit(f"{LIMIT_PREFIX}{name}", value)
            check_setting(
                0 < limit < math.inf, f"{LIMIT_PREFIX}{name}", value, "must be greater than 0."
            )

    def _check_finish(self) -> None:
        """Check the list of `finish`, and bring it into one form: auto, none or a list."""
        named = [self.finish] if isinstance(self.finish, str) else self.finish or ["none"]
        rule = f"must be auto, none, or a list of {', '.join(part.value for part in Finish)}."
        is_list = isinstance(named, list | tuple) and all(isinstance(name, str) for name in named)
        check_setting(is_list, "study.finish", self.finish, rule)
        is_word = len(named) == 1 and named[0] in ("auto", "none")
        is_known = is_word or {*named} <= {part.value for part in Finish}
        check_setting(is_known, "study.finish", self.finish, rule)
        self.finish = named[0] if is_word else list(dict.fromkeys(named))

    def finishes_with(self, part: Finish) -> bool:
        """Return whether a sweep ends with a part where its conditions hold."""
        return self.finish == "auto" or part.value in self.finish

    def _check_checkpoint_copies(self) -> None:
        if self.checkpoint_copies is None:
            return
        url = urlsplit(self.checkpoint_copies)
        in_bucket = url.scheme in ("s3", "gs") and bool(url.netloc)
        in_folder = url.scheme == "file" and not url.netloc and len(url.path) > 1
        secret = "@" in url.netloc or _SECRET.search(url.query) is not None
        check_setting(
            not secret,
            "study.checkpoint_copies",
            f"{url.scheme}://…",
            "a credential in it would come to every machine and into its logs: leave it out, and "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or "
            "GOOGLE_APPLICATION_CREDENTIALS on each machine.",
        )
        check_setting(
            in_bucket or in_folder,
            "study.checkpoint_copies",
            self.checkpoint_copies,
            "must be s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH.",
        )

    @property
    def decided_n_trials(self) -> int:
        """Return the number of trials in all. A `Config` decides it where it is left open."""
        return DEFAULT_N_TRIALS if self.n_trials is None else self.n_trials

    @property
    def least_free_space(self) -> str | None:
        """Return the free space below which nothing starts, as text; None: there is no limit."""
        return AUTO_FREE_SPACE if self.min_free_space == "auto" else self.min_free_space

    @property
    def min_free_bytes(self) -> int | None:
        """Return the free bytes below which nothing starts; None: the disk is not looked at."""
        space = self.least_free_space
        return None if space is None else parse_bytes("study.min_free_space", space)

    @property
    def shared(self) -> bool:
        """Return whether sweeps of several machines may work on the study."""
        return is_shared_storage(self.storage or "")

    @property
    def metrics(self) -> StudyMetrics:
        """Return the metrics with their directions, and the limits. A `Config` decides a direction
        where it is left open."""
        several = isinstance(self.metric, list)
        directions = (self.direction if several else [self.direction]) or []
        names = self.metric if several else [self.metric]
        metrics = [
            StudyMetric(name, direction or Direction.minimize)
            for name, direction in zip_longest(names, directions)
        ]
        limits = (
            MetricLimit(name, parse_limit(f"{LIMIT_PREFIX}{name}", value))
            for name, value in self.constraints.items()
        )
        return StudyMetrics(tuple(metrics), tuple(limits))

    @property
    def users_metric(self) -> str | None:
        """Return the name, without `val_`, of the metric that is a function of the user's."""
        return None if self.metric_function is None else metric_function_name(self.metric_function)

    def with_metric_function(self) -> StudyConfig:
        """Return the settings with the name of a metric that names a function, and the function
        by itself: `costs.py:my_cost` becomes `val_my_cost`. Raises ConfigError."""
        names = self.metric if isinstance(self.metric, list) else [self.metric]
        targets = [name for name in names if is_function_target(name)]
        rule = "one metric may be a function of your own: give a single one."
        check_setting(len(targets) <= 1, "study.metric", self.metric, rule)
        target = targets[0] if targets else self.metric_function
        if target is None:
            return self
        own = metric_function_name(target)
        ours = {*METRIC_OF_LOSS.values()}.union(*METRICS_OF_TASK.values())
        rule = f"val_{own} is a metric of ours: give the function another name."
        check_setting(own not in ours, "study.metric", target, rule)
        named = [f"{JUDGED_PREFIX}{own}" if name in targets else name for name in names]
        metric = named if isinstance(self.metric, list) else named[0]
        return replace(self, metric=metric, metric_function=target)

    @property
    def leading_metric(self) -> str:
        """Return the name of the one metric, or of the first of several."""
        return self.metrics.leading.name

    @property
    def decided_direction(self) -> Direction:
        """Return the direction of the leading metric."""
        return self.metrics.leading.direction


def metric_function_name(target: str) -> str:
    """Return the name of a metric that is a function: `costs.py:my_cost` → `my_cost`."""
    return target.rpartition(":")[2].rpartition(".")[2]


def _directions(names: Sequence[str], given: Any) -> Any:
    """Return the directions in one form: for several metrics a list, None where one is left open.

    Raises ConfigError for a direction of a metric that is not named, or that is none.
    """
    key = "study.direction"
    if isinstance(given, Mapping):
        unknown = next((name for name in given if name not in names), None)
        rule = f"study.metric does not name {unknown}; it names {', '.join(names)}."
        check_setting(unknown is None, key, given, rule)
        given = [given.get(name) for name in names]
    several = isinstance(given, list | tuple)
    if not several and given is not None and len(names) > 1:
        given = [given] * len(names)
    each = [_direction(one) for one in (given if isinstance(given, list | tuple) else [given])]
    if given is None:
        return None
    rule = f"study.metric names {len(names)} ({', '.join(names)}): give a direction for each."
    check_setting(len(each) == len(names), key, [d and d.value for d in each], rule)
    return each if len(names) > 1 else each[0]


def _direction(given: Any) -> Direction | None:
    if given is None or isinstance(given, Direction):
        return given
    rule = "expected one of [minimize, maximize]."
    check_setting(given in Direction.__members__, "study.direction", given, rule)
    return Direction[given]


class KeepCheckpoints(enum.Enum):
    """The checkpoints that become artifacts in MLflow."""

    all = "all"
    best = "best"
    none = "none"


class TrackingInside(enum.Enum):
    """The way to treat an objective that logs to an MLflow address that it sets itself."""

    follow = "follow"
    redirect = "redirect"


NO_URI = "none"
"""The value of `tracking.uri` with which nothing goes to MLflow."""


@dataclass
class TrackingConfig:
    """The store that shows results, and the artifacts that it gets."""

    uri: str | None = setting("some", None)
    """MLflow tracking URI. auto: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db. none: the study
    keeps everything, and `sync` gives it to MLflow later."""
    checkpoints: KeepCheckpoints = setting("some", KeepCheckpoints.all)
    """The checkpoints that become artifacts in MLflow: all (last and best), best, or none."""
    inside: TrackingInside = setting("few", TrackingInside.follow)
    """Values that an objective logs through MLflow go to its trial's run. If it sets an address
    itself (`mlflow.set_tracking_uri`), or is a program of another environment, they follow that
    address, or are redirected to the trial's run."""

    def __post_init__(self) -> None:
        self.uri = None if self.uri == "auto" else self.uri

    @property
    def uses_mlflow(self) -> bool:
        """Return whether results go to MLflow."""
        return self.uri != NO_URI
