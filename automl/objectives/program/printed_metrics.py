"""Metrics in what a program prints. Pure, and linear in the length of a line.

Taken for a metric: `val_loss: 0.31` and `val_loss=0.31`, JSON objects, Python's dicts as they are
printed, and a number behind words of which one says what it is (`val loss 2.53`). With a pattern
its named groups are metrics, and nothing else is.

Lines with metrics put together into reports: one of each step. Pure.

A line with the study's metric ends a report, which is told at once, so that it can be judged. What
other lines tell is told with it, or when another step begins. A step is the line's own where it is
larger than that of the last report; without one reports are counted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from automl.config.objective import STEP_NAMES
from automl.trial import MAX_STEP

MAX_LINE_BYTES = 4096
"""Of a longer line the rest is not looked at: a user's pattern may take time that grows with it."""
_MAX_NAME_CHARACTERS = 100
_MAX_WORDS = 4
_MAX_DEPTH = 3

_LINE_END = re.compile(rb"[\r\n]")  # a progress bar ends its lines with \r alone
_TOKEN = re.compile(
    r"(?P<number>[-+]?(?>\d{1,3}(?:,\d{3})++(?![\d.])|\d++(?:\.\d*+)?|\.\d++)(?>(?:[eE][-+]?\d++)?)"
    r"|[-+]?(?i:infinity|inf|nan)(?![\w/]))"
    r"|(?P<word>[A-Za-z_][\w/]*+(?:[.-]\w++)*+)"
    r"|(?P<equals>[:=])"
    r"|(?P<nothing>[ '\"#]++)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_UNIT = re.compile(r"[\w]|[.:,-]\d")
"""What follows a number that is none: `12ms`, `11:39`, `2026-11-22`, `2.13.0`."""
_FRACTION = re.compile(r" ?/")
_NORMAL = re.compile(r"[\s/.-]+")
_NOISE = frozenset(("debug", "info", "warning", "warn", "error", "critical"))
_MEASURES = frozenset(
    [
        "loss",
        "losses",
        "acc",
        "accuracy",
        "top1",
        "top5",
        "err",
        "error",
        "auc",
        "auroc",
        "ap",
        "map",
        "f1",
        "score",
        "precision",
        "recall",
        "perplexity",
        "ppl",
        "bleu",
        "rouge",
        "mse",
        "rmse",
        "mae",
        "r2",
        "iou",
        "miou",
        "dice",
        "psnr",
        "ssim",
        "fid",
        "elbo",
        "nll",
        "bpb",
        "bpc",
        "reward",
        "return",
        "kl",
    ]
)
"""Words behind which a number is a metric without `:` or `=` between."""


@dataclass(frozen=True)
class PrintedMetrics:
    """What a line tells."""

    metrics: Mapping[str, float]
    step: int | None = None
    """Epoch, step or iteration, where the line says it as a whole number."""


FindMetrics: TypeAlias = "Callable[[str], PrintedMetrics]"


class LineSplitter:
    """Cuts a stream of bytes into lines, each at most 4 KiB of it; empty ones are left out."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The lines that end in `chunk`, whatever bytes they are of."""
        *ended, rest = _LINE_END.split(chunk)
        for piece in ended:
            self._add(piece)
            yield from self.rest()
        self._add(rest)

    def rest(self) -> Iterator[str]:
        """The line that has begun, as if it ended here."""
        line, self._begun = self._begun.decode(errors="replace"), bytearray()
        if line.strip():
            yield line

    def _add(self, piece: bytes) -> None:
        self._begun += piece[: MAX_LINE_BYTES - len(self._begun)]


def make_metric_finder(metric: str, pattern: str | None) -> FindMetrics:
    """What finds metrics in a line; `metric` is spelt so whatever the program makes of it."""
    if pattern is None:
        return lambda line: find_metrics(line, metric)
    compiled = re.compile(pattern)
    return lambda line: find_metrics_by_pattern(compiled, line, metric)


def find_metrics(line: str, metric: str) -> PrintedMetrics:
    """By the usual ways to print metrics."""
    pairs = _of_json(line)
    return _found(_scanned(line, metric) if pairs is None else pairs, metric)


def find_metrics_by_pattern(pattern: re.Pattern[str], line: str, metric: str) -> PrintedMetrics:
    """By the named groups of a pattern, wherever it matches."""
    texts = ((k, v) for match in pattern.finditer(line) for k, v in match.groupdict().items() if v)
    pairs = ((name, _number(text.rstrip("%"))) for name, text in texts)
    return _found([(name, value) for name, value in pairs if value is not None], metric)


def _found(pairs: list[tuple[str, float]], metric: str) -> PrintedMetrics:
    metrics: dict[str, float] = {}
    steps: dict[str, int] = {}
    for name, value in pairs:
        normal = normalize_name(name)
        if normal == normalize_name(metric):
            metrics[metric] = value
        elif normal in STEP_NAMES:
            if value.is_integer() and value >= 0:
                steps[normal] = int(value)
        elif len(name) <= _MAX_NAME_CHARACTERS:
            metrics[name] = value
    finest = [steps[name] for name in STEP_NAMES if name in steps]
    return PrintedMetrics(metrics, finest[0] if finest else None)


@lru_cache(maxsize=1024)
def normalize_name(name: str) -> str:
    """`Val EvaluatedLoss`, `val/loss` and `val-loss` are `val_loss`."""
    return _NORMAL.sub("_", name).lower()


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


# --- JSON ---------------------------------------------------------------------------------------


def _of_json(line: str) -> list[tuple[str, float]] | None:
    """Numbers of a JSON object; None: the line is none."""
    text = line.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return list(_flat(value, "", 0)) if isinstance(value, dict) else None


def _flat(value: Mapping[str, object], prefix: str, depth: int) -> Iterator[tuple[str, float]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and depth < _MAX_DEPTH:
            yield from _flat(inner, f"{prefix}{key}/", depth + 1)
        elif isinstance(inner, int | float) and not isinstance(inner, bool):
            try:
                yield f"{prefix}{key}", float(inner)
            except OverflowError:
                yield f"{prefix}{key}", math.inf


# --- all other lines ----------------------------------------------------------------------------


def _scanned(line: str, metric: str) -> list[tuple[str, float]]:
    """Numbers with the name that stands before them, from left to right."""
    pairs: list[tuple[str, float]] = []
    words: list[str] = []
    equals = False
    for token in _TOKEN.finditer(line):
        kind, text = token.lastgroup, token.group()
        if kind == "word":
            words, equals = ([text] if equals else [*words[1 - _MAX_WORDS :], text]), False
        elif kind == "equals":
            equals = bool(words)
        elif kind == "number":
            name = _name(words, metric, equals=equals)
            if name is not None and _is_number(line, token.end(), name):
                pairs.append((name, float(text.replace(",", ""))))
            words, equals = [], False
        elif kind == "other" and not (text in "[(" and words and _is_step(words[-1])):
            words, equals = [], False
    return pairs


def _is_number(line: str, end: int, name: str) -> bool:
    """Whether what stands there is a number to its end; of steps the first of two: `3/10`."""
    if _FRACTION.match(line, end):
        return _is_step(name)
    return _UNIT.match(line, end) is None


def _is_step(word: str) -> bool:
    return word.lower() in STEP_NAMES


def _name(words: list[str], metric: str, *, equals: bool) -> str | None:
    """What a number behind these words is called; None: it is no metric."""
    words = [word for word in words if word.lower() not in _NOISE] or words
    if not words:
        return None
    last, wanted = words[-1], normalize_name(metric)
    for n in range(len(words)):
        if normalize_name(" ".join(words[n:])) == wanted and (n == 0 or "_" in wanted):
            return metric
    if _is_step(last):
        return last
    is_compound = "_" in last or "/" in last
    if len(words) == 1 or (is_compound and equals):
        return last if equals or _measures(last) else None
    if any(map(_measures, words)):
        return last if is_compound else normalize_name(" ".join(words))
    return None


def _measures(word: str) -> bool:
    return not _MEASURES.isdisjoint(normalize_name(word).split("_"))


MAX_METRICS = 200
"""Of a report: a program may print names without end."""


class PrintedReport(NamedTuple):
    step: int
    metrics: dict[str, float]


class ReportGrouping:
    """The lines of one program, from its first."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._last = -1
        self._step: int | None = None
        """Of what is still to be told, where a line said it."""
        self._metrics: dict[str, float] = {}

    def take(self, found: PrintedMetrics) -> Iterator[PrintedReport]:
        """The reports that this line ends."""
        if found.step is not None and self._step not in (None, found.step):
            yield from self.rest()
        if found.step is not None and self._last < found.step <= MAX_STEP:
            self._step = found.step
        for name, value in found.metrics.items():
            if name in self._metrics or len(self._metrics) < MAX_METRICS or name == self._metric:
                self._metrics[name] = value
        if self._metric in found.metrics:
            yield from self.rest()

    def rest(self) -> Iterator[PrintedReport]:
        """What was not told yet."""
        if self._metrics:
            self._last = self._last + 1 if self._step is None else self._step
            metrics, self._metrics = self._metrics, {}
            self._step = None
            yield PrintedReport(self._last, metrics)
        self._step = None
