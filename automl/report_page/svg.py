"""Draws charts as SVG text: axes, dots, lines, bars. All text from outside is escaped here.

Colours and fonts come from the page's style sheet, by class names, so that a chart follows light
and dark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from automl.record.texts import printable_text

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, width and height of a rectangle in pixels."""
_MAX_DRAWN = 1e300
"""Larger values lie at the edge of a chart: the arithmetic of an axis would overflow."""
_MAX_BEYOND = 4.0
"""How far a line leaves its frame at most, in frames."""
_LINE_ROOM = 3
"""Pixels around the frame in which a thick line along its edge is seen whole."""
MANY = 400
"""More marks of one kind are drawn smaller."""
MAX_EXACT = 100
"""More marks or points of one kind stand at whole pixels, which takes a third off a page."""


def number_text(value: float, n_digits: int = 4) -> str:
    """Return a number for people: `0.0387`, `1.2e-12`, `nan`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1e4 and abs(value) < 1e7 and value == round(value):
        return f"{value:,.0f}"
    return f"{value:.{n_digits}g}"


def pixels(value: float) -> str:
    """Return a length or a place in pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def whole_line(places: Sequence[tuple[int, int]]) -> str:
    """Return the path of a line through whole pixels. Each place is told from the one before, which
    is shorter; the page's script reads it so."""
    path = f"M{places[0][0]} {places[0][1]}"
    steps = [
        f"{x - before_x}{' ' if y >= before_y else ''}{y - before_y}"
        for (before_x, before_y), (x, y) in itertools.pairwise(places)
    ]
    return path + ("l" + " ".join(steps) if steps else "")


def short_text(text: str, n_characters: int) -> str:
    """Return printable text of at most `n_characters`, cut with `…`."""
    line = printable_text(" ".join(text.split()))
    return line if len(line) <= n_characters else line[: n_characters - 1] + "…"


def page_duration(seconds: float) -> str:
    """Return a duration: `8 s`, `3.5 min`, `2.1 h`, `4.0 d`."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit in which an axis of so many seconds is labelled: its seconds and its name."""
    if seconds > 2 * 86400:
        return 86400.0, "days"
    if seconds > 2 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 180 else (1.0, "seconds")


@dataclass(frozen=True)
class Axis:
    """Maps values to places along a chart's side."""

    low: float
    high: float
    is_log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], *, log: bool | None = None) -> Axis:
        """Return an axis that spans the values whose size can be drawn; `log=None`: logarithmic if
        they span three orders of magnitude."""
        drawn = [value for value in values if abs(value) < _MAX_DRAWN]
        if not drawn:
            return cls(0.0, 1.0)
        low, high = min(drawn), max(drawn)
        is_log = low > 0 and (high / low > 1000 if log is None else log)
        if high - low < 1 / _MAX_DRAWN:
            margin = abs(low) * 0.05 if abs(low) > 1 / _MAX_DRAWN else 1.0
            return cls(low - margin, high + margin)
        if is_log:
            margin = (high / low) ** 0.03
            return cls(low / margin, high * margin, is_log=True)
        margin = (high - low) * 0.04
        return cls(low - margin, high + margin)

    def share(self, value: float) -> float:
        """Return the place of a value, from 0 (low) to 1 (high); values beyond are at the edge."""
        return min(1.0, max(0.0, self.place(value)))

    def place(self, value: float) -> float:
        """Return the place of a value: 0 is low, 1 is high, and values beyond lie outside, up to
        `_MAX_BEYOND`."""
        low, high = self.low, self.high
        if not math.isfinite(value):
            return 1 + _MAX_BEYOND if value > 0 else -_MAX_BEYOND
        if self.is_log:
            if value <= 0:
                return -_MAX_BEYOND
            low, high, value = math.log(low), math.log(high), math.log(value)
        return min(1 + _MAX_BEYOND, max(-_MAX_BEYOND, (value - low) / (high - low)))

    def value_at(self, share: float) -> float:
        """Return the value at a place from 0 (low) to 1 (high)."""
        if self.is_log:
            return math.exp(math.log(self.low) + share * math.log(self.high / self.low))
        return self.low + share * (self.high - self.low)

    def is_beyond(self, value: float) -> bool:
        """Return whether a value lies outside of the axis, so that its place says nothing of it."""
        return not self.low <= value <= self.high

    def ticks(self, n: int = 5) -> Sequence[float]:
        """Return about `n` round values of the axis."""
        if self.is_log:
            return self._log_ticks(n)
        rough = (self.high - self.low) / n
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step) + 1)]

    def _log_ticks(self, n: int) -> Sequence[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        stride = max(1, math.ceil((last - first) / n))
        found: list[float] = []
        for factors in ((1,), (1, 3), (1, 2, 5)):
            found = [
                f * 10.0**power
                for power in range(first, last + 1, stride)
                for f in factors
                if self.low * 0.999 <= f * 10.0**power <= self.high * 1.001
            ]
            if len(found) >= min(3, n):
                return found
        return found if len(found) > 1 else [self.low, self.high]


@dataclass
class Chart:
    """A picture under construction: a frame with axes, and marks within it."""

    title: str
    """What the picture shows; read aloud by screen readers."""
    width: int = 560
    height: int = 260
    left: int = 72
    right: int = 12
    top: int = 10
    bottom: int = 38
    x: Axis = field(default_factory=lambda: Axis(0.0, 1.0))
    y: Axis = field(default_factory=lambda: Axis(0.0, 1.0))
    marks: list[str] = field(default_factory=list)

    def x_at(self, value: float) -> float:
        return self.left + self.x.share(value) * (self.width - self.left - self.right)

    def y_at(self, value: float) -> float:
        return self.height - self.bottom - self.y.share(value) * self._inner_height

    @property
    def _inner_width(self) -> int:
        return self.width - self.left - self.right

    @property
    def _inner_height(self) -> int:
        return self.height - self.top - self.bottom

    def draw_axes(self, x_label: str, y_label: str, *, x_ticks: Ticks = None) -> None:
        """Draw both axes with round values and their labels."""
        base = self.height - self.bottom
        shown_x = [(v, number_text(v)) for v in self.x.ticks()] if x_ticks is None else x_ticks
        for value, text in shown_x:
            place = self.x_at(value)
            self.add_path(f"M{pixels(place)} {self.top}V{base}", "grid")
            self.add_text(place, base + 15, text, anchor="middle")
        for value in self.y.ticks():
            place = self.y_at(value)
            self.add_path(f"M{self.left} {pixels(place)}H{self.width - self.right}", "grid")
            self.add_text(self.left - 6, place + 4, number_text(value), anchor="end")
        self.add_text(
            (self.left + self.width - self.right) / 2, self.height - 6, x_label, "label", "middle"
        )
        middle = self.top + self._inner_height / 2
        self.marks.append(
            f'<text class="label" text-anchor="middle" transform="translate(12 {middle:.0f}) '
            f'rotate(-90)">{escape(y_label)}</text>'
        )

    def add_text(
        self, x: float, y: float, text: str, css: str = "tick", anchor: str = "start"
    ) -> None:
        self.marks.append(
            f'<text class="{css}" x="{pixels(x)}" y="{pixels(y)}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def add_line(
        self,
        points: Sequence[Point],
        css: str,
        tip: str = "",
        more: str = "",
        *,
        whole: bool = False,
    ) -> None:
        """Draw a line through points in the units of the axes; it leaves the frame where its values
        do. `more` are further attributes, such as `numbered`. `whole`: one of many lines, whose
        places are whole pixels."""
        if not points:
            return
        places = [(self.x_at(x), self._line_y(y)) for x, y in points]
        if whole:
            path = whole_line([(round(x), round(y)) for x, y in places])
        else:
            path = "M" + "L".join(f"{x:.0f} {pixels(y)}" for x, y in places)
        if len(points) == 1:
            path += "h.1"
        self._add_clipped(path, css, tip, more)

    def add_band(self, points: Sequence[tuple[float, float, float]], css: str) -> None:
        """Fill the room between a low and a high value at each place."""
        low = [f"{self.x_at(x):.1f} {self._line_y(y):.1f}" for x, y, _ in points]
        high = [f"{self.x_at(x):.1f} {self._line_y(y):.1f}" for x, _, y in reversed(points)]
        if len(points) > 1:
            self._add_clipped(f"M{'L'.join([*low, *high])}Z", css)

    def add_steps(self, points: Sequence[Point], css: str) -> None:
        """Draw a line that keeps each value until the next point."""
        if not points:
            return
        places = [self._place_text(x, y, whole=len(points) > MAX_EXACT).split() for x, y in points]
        path, (across, level) = "M{} {}".format(*places[0]), places[0]
        for i, (x, y) in enumerate(places[1:], start=1):
            if y == level and i + 1 < len(places):
                continue  # the line goes on level
            path += f"H{x}" * (x != across) + f"V{y}" * (y != level)
            across, level = x, y
        self._add_clipped(path, css)

    def _line_y(self, value: float) -> float:
        return self.height - self.bottom - self.y.place(value) * self._inner_height

    def _add_clipped(self, path: str, css: str, tip: str = "", more: str = "") -> None:
        """Draw a path whose parts outside of the frame are not seen. Paths that follow one another
        share an inner picture, which clips them."""
        left, top = self.left - _LINE_ROOM, self.top - _LINE_ROOM
        wide, tall = self._inner_width + 2 * _LINE_ROOM, self._inner_height + 2 * _LINE_ROOM
        opening = (
            f'<svg class="clip" x="{left}" y="{top}" width="{wide}" height="{tall}" '
            f'viewBox="{left} {top} {wide} {tall}">'
        )
        last = self.marks[-1] if self.marks else ""
        if last.startswith(opening):
            self.marks[-1] = last.removesuffix("</svg>")
        else:
            self.marks.append(opening)
        self.add_path(path, css, tip, more)
        self.marks[-2:] = [f"{self.marks[-2]}{self.marks[-1]}</svg>"]

    def add_dots(self, points: Sequence[Point], css: str, trials: Sequence[int] = ()) -> None:
        """Draw round dots, of these trials if they are given. Values beyond the axis are triangles
        at its edge."""
        shown, numbers = self._split_beyond(points, trials)
        are_whole = len(points) > MAX_EXACT
        path = "".join(f"M{self._place_text(x, y, whole=are_whole)}h0" for x, y in shown)
        many = " many" * (len(points) > MANY)
        self.add_path(path, f"dots {css}{many}", more=numbered(numbers))

    def add_squares(self, points: Sequence[Point], css: str, trials: Sequence[int] = ()) -> None:
        """Draw a hollow square at each point, and a triangle for values beyond the axis."""
        shown, numbers = self._split_beyond(points, trials)
        are_whole = len(points) > MAX_EXACT
        places = (self._place_text(x, y, whole=are_whole, shift=-2) for x, y in shown)
        path = "".join(f"M{place}h4v4h-4z" for place in places)
        many = " many" * (len(points) > MANY)
        self.add_path(path, f"hollow {css}{many}", more=numbered(numbers))

    def _place_text(self, x: float, y: float, *, whole: bool, shift: float = 0.0) -> str:
        """Return the place of a mark, in `whole` pixels or in tenths."""
        across, down = self.x_at(x) + shift, self._line_y(y) + shift
        return f"{across:.0f} {down:.0f}" if whole else f"{pixels(across)} {pixels(down)}"

    def _split_beyond(
        self, points: Sequence[Point], trials: Sequence[int]
    ) -> tuple[Sequence[Point], Sequence[int]]:
        """Draw a triangle at the edge for each value beyond it, which points to where it lies;
        return the other points, and their trials."""
        beyond = [i for i, (_, y) in enumerate(points) if self.y.is_beyond(y)]
        path = ""
        for x, y in (points[i] for i in beyond):
            tall = 6 if self.y.place(y) < 0 else -6
            path += f"M{self.x_at(x) - 3:.1f} {self.y_at(y) - tall:.1f}h6l-3 {tall}z"
        self.add_path(path, "beyond", more=numbered([trials[i] for i in beyond if trials]))
        out = {*beyond}
        shown = [point for i, point in enumerate(points) if i not in out]
        return shown, [trial for i, trial in enumerate(trials) if i not in out]

    def add_ticks(self, points: Sequence[Point], css: str, more: str = "") -> None:
        """Draw a short level line at each point. `more` are further attributes."""
        places = [(self.x_at(x), self.y_at(y)) for x, y in points]
        self.add_path(
            "".join(f"M{x - 4:.1f} {y:.1f}h8" for x, y in places), f"hollow {css}", more=more
        )

    def add_crosses(self, points: Sequence[Point], css: str, trials: Sequence[int] = ()) -> None:
        marks = ""
        for x, y in points:
            left, top = self.x_at(x) - 3, self.y_at(y) - 3
            marks += f"M{left:.1f} {top:.1f}l6 6m0-6l-6 6"
        self.add_path(marks, f"hollow {css}", more=numbered(trials))

    def add_bars(self, boxes: Sequence[Box], css: str, trials: Sequence[int] = ()) -> None:
        """Draw filled rectangles as one path, of these trials if they are given."""
        path = ""
        for x, y, width, height in boxes:
            left, wide = pixels(x), pixels(max(width, 0.5))
            path += f"M{left} {pixels(y)}h{wide}v{pixels(height)}H{left}z"
        self.add_path(path, f"bars {css}", more=numbered(trials))

    def add_rectangle(self, box: Box, css: str, tip: str = "") -> None:
        """Draw a filled rectangle."""
        x, y, width, height = box
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self.marks.append(
            f'<rect class="{css}" x="{pixels(x)}" y="{pixels(y)}" '
            f'width="{pixels(max(width, 0.5))}" height="{pixels(height)}"{_closed(title, "rect")}'
        )

    def add_path(self, path: str, css: str, tip: str = "", more: str = "") -> None:
        if path:
            title = f"<title>{escape(tip)}</title>" if tip else ""
            self.marks.append(f'<path class="{css}" d="{path}"{more}{_closed(title, "path")}')

    @property
    def frame(self) -> str:
        """The attributes by which the page's script turns places upwards into values."""
        base, right = self.height - self.bottom, self.width - self.right
        ends = f"{self.y.low!r} {self.y.high!r} {self.top} {base} {self.left} {right}"
        return f' data-frame="{ends}" data-log="{self.y.is_log:d}"'

    def svg(self, css: str = "", more: str = "") -> str:
        """Return the picture; `more` are further attributes."""
        return (
            f'<svg class="{css}" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.title)}"{more}>{"".join(self.marks)}</svg>'
        )


Ticks = Sequence[tuple[float, str]] | None


def _closed(content: str, tag: str) -> str:
    """Return the end of an element's opening, its content and its end."""
    return f">{content}</{tag}>" if content else "/>"


def numbered(trials: Sequence[int]) -> str:
    """Return the attribute by which the page's script finds the trials of a mark's parts."""
    return f' data-n="{" ".join(map(str, trials))}"' if trials else ""
