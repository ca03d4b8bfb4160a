"""Finds metrics in what a program prints, and groups them into one report for each step.

These count as metrics: `val_loss: 0.31` and `val_loss=0.31`, JSON objects, printed dicts of
Python's, and a number after words, one of which names a measure (`val loss 2.53`). With a pattern
only its named groups are metrics.

A line with the study's metric ends a report at once, so that the sweep can judge it. Metrics in
other lines join that report, or form one when another step begins. The step is the number in the
line if it is larger than the last report's; without a number, reports are counted. All is pure,
and linear in the length of a line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from automl.config.objective import STEP_NAMES
from automl.record.texts import parse_json
from automl.trial import MAX_STEP

MAX_LINE_BYTES = 4096
"""Bytes of a line that are searched. A user's pattern may take time that grows with the length."""
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
"""Text behind digits that make no number: `12ms`, `11:39`, `2026-11-22`, `2.13.0`."""
_FRACTION = re.compile(r" ?/")
_NORMAL = re.compile(r"[\s/.-]+")
_NOISE = frozenset(("debug", "info", "warning", "warn", "error", "critical"))
_MEASURES = frozenset(
    (
        *("loss", "losses", "err", "error", "mse", "rmse", "mae", "nll", "elbo", "kl", "bpb"),
        *("acc", "accuracy", "top1", "top5", "auc", "auroc", "ap", "map", "f1", "precision"),
        *("recall", "perplexity", "ppl", "bpc", "bleu", "rouge", "iou", "miou", "dice", "psnr"),
        *("ssim", "fid", "r2", "score", "reward", "return"),
    )
)
"""Words after which a number is a metric even without `:` or `=`."""


@dataclass(frozen=True)
class PrintedMetrics:
    """The metrics in one line of a program's output, and the step that they belong to."""

    metrics: Mapping[str, float]
    step: int | None = None
    """The epoch, step or iteration, if the line has it as a whole number."""


FindMetrics: TypeAlias = "Callable[[str], PrintedMetrics]"


class LineSplitter:
    """Cuts a stream of bytes into lines. Empty lines are dropped, and lines end after 4 KiB."""

    def __init__(self) -> None:
        self._unfinished = bytearray()

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the lines that end in `chunk`; bytes that are no UTF-8 are replaced."""
        *ended, rest = _LINE_END.split(chunk)
        for piece in ended:
            self._add(piece)
            yield from self.rest()
        self._add(rest)

    def rest(self) -> Iterator[str]:
        """Yield the unfinished line, as if it ended here."""
        line, self._unfinished = self._unfinished.decode(errors="replace"), bytearray()
        if line.strip():
            yield line

    def _add(self, piece: bytes) -> None:
        self._unfinished += piece[: MAX_LINE_BYTES - len(self._unfinished)]


def make_metric_finder(metric: str, pattern: str | None) -> FindMetrics:
    """Return a function that finds metrics in a line.

    The study's metric is always called `metric`, however the program spells it.
    """
    if pattern is None:
        return lambda line: find_metrics(line, metric)
    compiled = re.compile(pattern)
    return lambda line: find_metrics_by_pattern(compiled, line, metric)


def find_metrics(line: str, metric: str) -> PrintedMetrics:
    """Find the metrics in a line by the usual ways to print metrics."""
    pairs = _numbers_in_json(line)
    if pairs is None:
        pairs = _numbers_in_text(line, metric)
    return _printed_metrics(pairs, metric)


def find_metrics_by_pattern(pattern: re.Pattern[str], line: str, metric: str) -> PrintedMetrics:
    """Find the metrics in a line by the named groups of a pattern, wherever it matches."""
    texts = ((k, v) for match in pattern.finditer(line) for k, v in match.groupdict().items() if v)
    pairs = ((name, _number(text.rstrip("%"))) for name, text in texts)
    return _printed_metrics([(name, value) for name, value in pairs if value is not None], metric)


def _printed_metrics(pairs: list[tuple[str, float]], metric: str) -> PrintedMetrics:
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
    """Return the common form of a name: `Val Loss`, `val/loss` and `val-loss` are `val_loss`."""
    return _NORMAL.sub("_", name).lower()


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


# --- JSON ---------------------------------------------------------------------------------------


def _numbers_in_json(line: str) -> list[tuple[str, float]] | None:
    """Return the numbers of a JSON object; None if the line is none."""
    text = line.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return None
    return list(_flatten(value, "", 0)) if isinstance(value, dict) else None


def _flatten(value: Mapping[str, object], prefix: str, depth: int) -> Iterator[tuple[str, float]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and depth < _MAX_DEPTH:
            yield from _flatten(inner, f"{prefix}{key}/", depth + 1)
        elif isinstance(inner, int | float) and not isinstance(inner, bool):
            try:
                yield f"{prefix}{key}", float(inner)
            except OverflowError:
                yield f"{prefix}{key}", math.inf


# --- all other lines ----------------------------------------------------------------------------


def _numbers_in_text(line: str, metric: str) -> list[tuple[str, float]]:
    """Return the numbers in a line with the names before them, from left to right."""
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
    """Return whether the digits before `end` are a whole number or fraction of their own.

    In a fraction such as `3/10` the first number counts if it is a step.
    """
    if _FRACTION.match(line, end):
        return _is_step(name)
    return _UNIT.match(line, end) is None


def _is_step(word: str) -> bool:
    return word.lower() in STEP_NAMES


def _name(words: list[str], metric: str, *, equals: bool) -> str | None:
    """Return the name of a number behind these words; None if it is no metric."""
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
"""Largest number of metrics in a report, since a program may print new names without end."""


class PrintedReport(NamedTuple):
    step: int
    metrics: dict[str, float]


class ReportGrouping:
    """Groups the metrics of a program's lines, from the first line on, into reports."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._last = -1
        self._step: int | None = None
        """The step of the unfinished report, if a line named it."""
        self._metrics: dict[str, float] = {}

    def take(self, found: PrintedMetrics) -> Iterator[PrintedReport]:
        """Add the metrics of a line, and yield the reports that it ends."""
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
        """Yield the unfinished report, if it has metrics."""
        if self._metrics:
            self._last = self._last + 1 if self._step is None else self._step
            metrics, self._metrics = self._metrics, {}
            self._step = None
            yield PrintedReport(self._last, metrics)
        self._step = None
