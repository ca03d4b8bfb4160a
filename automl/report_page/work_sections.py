"""Makes the sections that say where time and memory went, what failed, and what to do next."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from automl.config import UNLIMITED_N_TRIALS, StudyConfig
from automl.record.study_directory import study_command
from automl.record.study_files import trial_log_name
from automl.record.study_record import edit_lines
from automl.record.texts import counted, fit_line, mask_varying
from automl.report_page.findings import (
    ConcurrentExecutions,
    concurrency,
    device_seconds,
    failure_causes,
    group_by_device,
)
from automl.report_page.section import ReportSection, text_table
from automl.report_page.study_data import REPEATED, StudyData, TrialExecution
from automl.report_page.svg import (
    Axis,
    Box,
    Chart,
    number_text,
    page_duration,
    short_text,
    time_unit,
)
from automl.trial import StudyEdited, TrialState, TrialsWaited

MIN_GAP_SECONDS = 1.0
"""A shorter time between sweeps, or between trials of Optuna, is no gap."""
MAX_BARS = 400
"""More executions are drawn as an area: how many ran at once."""
MAX_ROWS = 24
"""Largest number of rows of bars for a device."""
N_BINS = 240
MAX_GAPS = 40
"""Largest number of gaps between sweeps that are drawn, the longest ones."""
IDLE = "idle"
LEAST_SHOWN_SECONDS = 0.05
"""Less is shown as no time at all."""
STATES = (
    TrialState.FINISHED.value,
    TrialState.PRUNED.value,
    TrialState.FAILED.value,
    TrialState.INTERRUPTED.value,
    TrialState.PAUSED.value,
    REPEATED,
    TrialState.RUNNING.value,
)


# --- the timeline --------------------------------------------------------------------------------


def timeline_section(data: StudyData) -> ReportSection | None:
    """Return what ran when on each device, with the memory that it asked for and held."""
    if not data.executions:
        return None
    by_device = group_by_device(data.executions)
    intervals = {name: concurrency(own) for name, own in by_device.items()}
    busy = {name: sum(e - s for s, e, _ in own) for name, own in intervals.items()}
    charts = [_device_chart(name, own, intervals[name], data) for name, own in by_device.items()]
    if data.waits:
        charts.append(_wait_chart(data))
    swept = data.worked_seconds(math.inf)
    share = min(1.0, sum(busy.values()) / (swept * len(by_device))) if swept else 1.0
    n_most = max((len(ran) for own in intervals.values() for *_, ran in own), default=0)
    sentences = [
        f"{counted(len(by_device), 'device')} trained for {share:.0%} of the sweep's time; at most "
        f"{counted(n_most, 'trial')} ran on one at once."
    ]
    gaps = [start - end for end, start in _gaps(data)]
    if gaps:
        sentences.append(
            f"No sweep worked for {page_duration(sum(gaps))}, in {counted(len(gaps), 'gap')} that "
            "a line marks."
        )
    waited = _waited_by_reason(data.waits)
    if waited:
        seconds, reason = waited[0]
        sentences.append(
            f"For {page_duration(sum(s for s, _ in waited))} in all, trials waited for something "
            f"else than their turn, longest ({page_duration(seconds)}): {fit_line(reason)}."
        )
    for name, reason in data.waiting[:3]:
        sentences.append(f"{name} waits: {fit_line(reason)}.")
    rows = [
        (
            name,
            str(len(own)),
            page_duration(busy[name]),
            _bytes_text(max(e.asked_bytes for e in own)),
            _bytes_text(max(e.seen_bytes for e in own)),
        )
        for name, own in by_device.items()
    ]
    columns = ("device", "executions", "busy", "largest request", "largest peak")
    table = text_table(columns, rows, title="Devices", folded=True)
    reasons = [(page_duration(seconds), reason) for seconds, reason in waited[:20]]
    tables = (
        table,
        text_table(("time", "waited for"), reasons, title="Waits", n_text=2, folded=True),
    )
    shown = tables if reasons else tables[:1]
    return ReportSection("timeline", "Timeline", tuple(sentences), tuple(charts), shown)


def _waited_by_reason(waits: Sequence[TrialsWaited]) -> list[tuple[float, str]]:
    """Return the seconds waited for each reason, the longest first; reasons that differ by numbers
    alone are one, in the words of the first."""
    seconds: dict[str, float] = defaultdict(float)
    words: dict[str, str] = {}
    for wait in waits:
        kind = mask_varying(wait.reason)
        seconds[kind] += wait.until - wait.time
        words.setdefault(kind, wait.reason)
    return sorted(((s, words[kind]) for kind, s in seconds.items()), reverse=True)


def _time_axis(data: StudyData) -> Axis:
    """Return the axis of the time in which sweeps worked: a gap has no length there."""
    return Axis(0.0, max(data.worked_seconds(max(e.end_seconds for e in data.executions)), 1e-9))


def _wait_chart(data: StudyData) -> str:
    """Draw when trials waited for something else than their turn."""
    x, at = _time_axis(data), data.worked_seconds
    chart = Chart("waits for memory or devices", width=1000, height=80, top=24, bottom=34, x=x)
    chart.add_text(chart.left, 14, "trials wait for memory, or for a device", "label")
    for wait in data.waits:
        left, right = chart.x_at(at(wait.time)), chart.x_at(at(wait.until))
        chart.add_rectangle((left, chart.top, right - left, 16), "repeated", wait.reason)
    _draw_time(chart, data)
    return chart.svg("wide")


def _bytes_text(size_bytes: float) -> str:
    if not size_bytes:
        return "unknown"
    if size_bytes < 2**30:
        return f"{size_bytes / 2**20:.0f} MiB"
    return f"{size_bytes / 2**30:.1f} GiB"


def _device_chart(
    name: str,
    executions: Sequence[TrialExecution],
    intervals: Sequence[ConcurrentExecutions],
    data: StudyData,
) -> str:
    at = data.worked_seconds
    lanes = _lanes(executions) if len(executions) <= MAX_BARS else []
    n_rows = max(lanes, default=0) + 1
    as_bars = bool(lanes) and n_rows <= MAX_ROWS
    size = max(4, min(14, 160 // n_rows)) if as_bars else 0
    memory = [(s, e, r) for s, e, r in intervals if any(x.seen_bytes for x in r)]
    top_height = n_rows * size if as_bars else 110
    chart = Chart(
        f"executions on {name}",
        width=1000,
        height=24 + top_height + 34 + (96 if memory else 0),
        left=62,
        top=24,
        bottom=34 + (96 if memory else 0),
        x=_time_axis(data),
    )
    chart.add_text(chart.left, 14, short_text(name, 110), "label")
    if as_bars:
        boxes: dict[str, list[tuple[Box, int]]] = defaultdict(list)
        for lane, e in zip(lanes, executions, strict=True):
            left, right = chart.x_at(at(e.start_seconds)), chart.x_at(at(e.end_seconds))
            box = left, float(chart.top + lane * size), right - left, size - 1.0
            boxes[e.state].append((box, e.trial))
        for state, own in boxes.items():
            chart.add_bars([box for box, _ in own], state, [trial for _, trial in own])
    else:
        _draw_concurrency(chart, executions, at, top_height)
    _draw_time(chart, data)
    if memory:
        _draw_memory(chart, memory, at)
    return chart.svg("wide")


def _lanes(executions: Sequence[TrialExecution]) -> list[int]:
    """Return a row for each execution, so that those of one row do not overlap."""
    free_from: list[float] = []
    lanes = []
    for execution in executions:
        lane = next(
            (i for i, free in enumerate(free_from) if free <= execution.start_seconds),
            len(free_from),
        )
        free_from[lane : lane + 1] = [execution.end_seconds]
        lanes.append(lane)
    return lanes


def _draw_concurrency(
    chart: Chart,
    executions: Sequence[TrialExecution],
    at: Callable[[float], float],
    height: int,
) -> None:
    """Draw how many executions ran at once, by how they ended."""
    bins = [defaultdict[str, float](float) for _ in range(N_BINS)]
    width = chart.x.high / N_BINS
    for execution in executions:
        start, end = at(execution.start_seconds), at(execution.end_seconds)
        for i in range(int(start / width), min(N_BINS - 1, int(end / width)) + 1):
            overlap = min(end, (i + 1) * width) - max(start, i * width)
            bins[i][execution.state] += max(0.0, overlap) / width
    most = max(max((sum(b.values()) for b in bins), default=1.0), 1.0)
    wide = (chart.width - chart.left - chart.right) / N_BINS
    boxes: dict[str, list[Box]] = defaultdict(list)
    for i, counts in enumerate(bins):
        base = float(chart.top + height)
        for state in STATES:
            if counts[state]:
                tall = height * counts[state] / most
                base -= tall
                boxes[state].append((chart.left + i * wide, base, wide + 0.3, tall))
    for state, own in boxes.items():
        chart.add_bars(own, state)
    chart.add_text(chart.left - 6, chart.top + 10, f"{most:.0f}", "tick", "end")


def _gaps(data: StudyData) -> list[tuple[float, float]]:
    """Return the end and the next start of sweeps with a time between that one would notice."""
    gaps = [(end, start) for (_, end), (start, _) in itertools.pairwise(data.spans)]
    return [(end, start) for end, start in gaps if start - end >= MIN_GAP_SECONDS]


def _draw_time(chart: Chart, data: StudyData) -> None:
    """Draw the axis of the time in which sweeps worked, and a line at each gap between them."""
    gaps = _gaps(data)
    for end, start in heapq.nlargest(MAX_GAPS, gaps, key=lambda gap: gap[1] - gap[0]):
        place = chart.x_at(data.worked_seconds(end))
        tip = f"no sweep for {page_duration(start - end)}"
        height = chart.height - chart.bottom - chart.top
        chart.add_rectangle((place - 1, chart.top, 2, height), "gap", tip)
    base = chart.height - chart.bottom
    unit, name = time_unit(chart.x.high)
    for value in Axis(0.0, chart.x.high / unit).ticks(8):
        place = chart.x_at(value * unit)
        chart.add_path(f"M{place:.1f} {base}v4", "grid")
        chart.add_text(place, base + 16, number_text(value), "tick", "middle")
    chart.add_text(
        chart.width - chart.right, base + 30, f"{name} in which a sweep worked", "tick", "end"
    )


def _draw_memory(
    chart: Chart, intervals: Sequence[ConcurrentExecutions], at: Callable[[float], float]
) -> None:
    top, height = chart.height - 90, 70
    asked, seen = list[tuple[float, float]](), list[tuple[float, float]]()
    for start, end, running in intervals:
        for line, total in (
            (asked, sum(e.asked_bytes or e.seen_bytes for e in running)),
            (seen, sum(e.seen_bytes for e in running)),
        ):
            line += [(at(start), total), (at(end), total)]
    most = max(total for _, total in [*asked, *seen]) or 1
    stride = max(1, len(asked) // 1500)
    for line, css in ((asked, "asked"), (seen, "seen")):
        path = ""
        for x, y in line[::stride]:
            across, level = f"{chart.x_at(x):.0f}", f"{top + height * (1 - y / most):.0f}"
            if not path:
                path, before = f"M{across} {level}", level
            elif level != before:
                path, before = f"{path}H{across}V{level}", level
        chart.add_path(f"{path}H{chart.x_at(line[-1][0]):.0f}", css)
    chart.add_text(chart.left - 6, top + 8, _bytes_text(most), "tick", "end")
    chart.add_text(chart.left - 6, top + height, "0", "tick", "end")
    chart.add_text(chart.left, chart.height - 6, "memory: requested (dashed) and measured", "label")


# --- failures and cost ---------------------------------------------------------------------------


def failures_section(data: StudyData) -> ReportSection | None:
    """Return why trials failed, by cause."""
    causes = failure_causes(data)
    n_large = sum(t.state is TrialState.PRUNED and t.cause is not None for t in data.ended)
    if not causes and not n_large:
        return None
    sentences = []
    if causes:
        n_failed = sum(n for n, *_ in causes)
        n, cause, first = causes[0]
        share = "" if n == n_failed else f", {n} of them"
        place = "" if n == 1 else "first "
        n_ended = len(data.ended)
        which = "The only trial" if n_ended == 1 else f"{n_failed:,} of {n_ended:,} trials"
        sentences.append(
            f"{which} failed{share} with {fit_line(cause, 200)} ({place}in trial {first})."
        )
    if n_large:
        fitted = "1 trial fits" if n_large == 1 else f"{n_large} trials fit"
        sentences.append(f"{fitted} on no device and got no value.")
    rows = [(str(n), cause, str(first)) for n, cause, first in causes[:20]]
    table = text_table(("trials", "last line", "first trial"), rows, n_text=2)
    if causes:
        sentences.append(
            f"All that trial {causes[0][2]} printed: logs/{trial_log_name(causes[0][2])}"
        )
    return ReportSection("failures", "Failures", tuple(sentences), tables=(table,) if rows else ())


def cost_section(data: StudyData) -> ReportSection | None:
    """Return the time of devices by what came of it."""
    spent = device_seconds(data.executions)
    if not spent:
        return None
    devices = {e.device for e in data.executions}
    swept = data.worked_seconds(math.inf) * len(devices)
    seconds = {state: spent[state] for state in STATES if spent.get(state, 0.0) > 0}
    idle = max(0.0, swept - sum(spent.values()))
    seconds[IDLE] = idle if idle >= LEAST_SHOWN_SECONDS else 0.0
    total = sum(seconds.values()) or 1.0
    shares = dict(zip(seconds, whole_percents([*seconds.values()]), strict=True))
    rows = [
        (state, page_duration(of_state), f"{shares[state]}%")
        for state, of_state in seconds.items()
        if of_state > 0
    ]
    bars = [of_state / total for of_state in seconds.values() if of_state > 0]
    parts = [f"{n}% for {state} ones" for state, n in shares.items() if state != IDLE]
    parts[0] = parts[0].removesuffix("ones") + "trials"
    if seconds[IDLE]:
        parts.append(f"{shares[IDLE]}% {IDLE}")
    sentence = (
        f"The sweep had {page_duration(total)} on {counted(len(devices), 'device')}: "
        f"{', '.join(parts)}."
    )
    table = text_table(("state", "device time", "share"), rows, bars=bars)
    return ReportSection("cost", "What it cost", (sentence,), tables=(table,))


def whole_percents(parts: Sequence[float]) -> list[int]:
    """Return the shares of the parts in whole percents that add up to 100, by largest remainders;
    all 0 if the parts are."""
    total = sum(parts)
    if total <= 0:
        return [0] * len(parts)
    exact = [100 * part / total for part in parts]
    whole = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: whole[i] - exact[i])
    for i in by_remainder[: 100 - sum(whole)]:
        whole[i] += 1
    return whole


# --- what next, and the config -------------------------------------------------------------------


def next_section(data: StudyData, study: StudyConfig, overrides: Sequence[str]) -> ReportSection:
    """Return the commands that usually come next. `overrides`: settings that widen a range."""
    n_wanted = data.record.n_trials or 0
    n = n_wanted if n_wanted < UNLIMITED_N_TRIALS else len(data.ended)
    commands = [("watch it in MLflow", study_command("ui", study))]
    if data.is_running:
        commands.insert(0, ("see what runs now", study_command("status", study)))
    else:
        commands.insert(0, ("try more", _more_command(data, study, n)))
    if overrides and not data.is_called:  # the call gives such a study its space
        edit = f"{study_command('edit', study)} {' '.join(overrides)} n_trials={n + 20}"
        commands.insert(0, ("widen the ranges, then resume", edit))
    if data.record.settings.get("objective.kind") == "builtin":
        refit = ("train the best on all rows", study_command("refit", study))
        export = ("make it a file to deploy", study_command("export", study))
        commands += [_score_command(data, study)]
        commands += [refit] * (not data.has_refit) + [export] * (not data.has_export)
    return ReportSection("next", "What next", (), commands=tuple(commands))


def _more_command(data: StudyData, study: StudyConfig, n_trials: int) -> str:
    """Return what tries more trials, without what ended the last sweep."""
    end = data.record.sweeps[-1].end if data.record.sweeps else None
    is_unlimited = (data.record.n_trials or 0) >= UNLIMITED_N_TRIALS  # for as long again
    resume = data.resume_text(study, None if is_unlimited else n_trials + 20)
    if end is not None and "study.stop_value=" in (end.reason or "") and not data.is_called:
        resume += " study.stop_value=none"
    return resume


def _score_command(data: StudyData, study: StudyConfig) -> tuple[str, str]:
    """Return what `evaluate` does, and the command, which needs a file where no rows were kept."""
    command, settings = study_command("evaluate", study), data.record.settings
    if "data.target" in settings and settings.get("data.test", "none") == "none":
        return "score the best models on rows of another file", f"{command} data.test=FILE"
    return "score the best models on unseen rows", command


def config_section(
    settings: Mapping[str, str], changed: Mapping[str, str], edits: Sequence[StudyEdited] = ()
) -> ReportSection:
    """Return the edits of the study, and the settings of the last sweep, folded."""
    rows = [
        (key, value, "changed" if key in changed else "") for key, value in sorted(settings.items())
    ]
    table = text_table(
        ("setting", "value", "since the sweep before"),
        rows,
        title=counted(len(rows), "setting"),
        n_text=3,
        folded=True,
    )
    made = [
        (
            time.strftime("%F %T", time.localtime(edit.time)),
            edit.user,
            str(edit.n_trials),
            "; ".join(edit_lines(edit)),
        )
        for edit in edits
    ]
    columns = ("edited", "by", "after trials", "change")
    tables = (text_table(columns, made, title="edits", n_text=4), table) if made else (table,)
    return ReportSection("config", "Settings", (), tables=tables)
