"""Finds the fastest way of running a model that can be written as an export (`export tune=true`).

The measuring is in `automl/measure/tuning`. The figures are kept in the study and in MLflow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.models.study_opening import deliver_evaluation, record_evaluation
from automl.config import Config, ExportFormat
from automl.errors import AutoMLError, ConfigError
from automl.record.studies import study_path
from automl.record.study_directory import settle_place_unlocked
from automl.record.texts import counted, say_on_stdout
from automl.terminal.console import CommandConsole
from automl.trial import ExportTuned

if TYPE_CHECKING:
    from automl.export.package import TunedFile
    from automl.measure.tuning.measurement import AccuracyCheck, TuningMeasurements, WayMeasurement
    from automl.measure.tuning.ways import InferenceWay
    from automl.models.predictor import Predictor

FILE, PICTURE = "tune.json", "tune.png"
COLUMNS = ("way", "p50 µs", "p99 µs", "rows/s of 256", "rows/s of 16,384", "loss", "")


@dataclass(frozen=True)
class FastestExport:
    """The fastest way of running the model that can be written as an export."""

    format: ExportFormat
    label: str
    tuned: TunedFile
    interrupted: bool
    """Whether the measuring was interrupted: ways that were not measured may be faster."""


def find_fastest_export(
    config: Config,
    predictor: Predictor,
    model: str,
    console: CommandConsole,
    folder: Path,
    tolerance: float,
) -> FastestExport:
    """Measure the ways, show them, and keep the figures in the study and in MLflow; files are made
    in `folder`.

    `model` is the model's name. Ctrl-C ends the measuring, and the ways measured so far count.
    Raises AutoMLError where no way that can be exported is within the tolerance, and
    KeyboardInterrupt where none has been measured so far.
    """
    from automl.measure.tuning.measurement import fastest_way, measure_ways, seconds_needed
    from automl.measure.tuning.ways import ways_here

    validation = _validation(config, predictor, tolerance)
    ways = ways_here(predictor)
    console.say(
        f"measures {_n_measured(ways)} ways of running it, by one row to 16,384 at a time: about "
        f"{_rounded(seconds_needed(ways))} on a free machine; Ctrl-C takes the fastest so far"
    )
    measurements = measure_ways(predictor, validation, ways, folder, _progress(console, ways))
    fastest = fastest_way(measurements.ways, files=True)
    _show(console, measurements.ways, validation)
    event = ExportTuned(
        time=time.time(),
        model=model,
        chosen="" if fastest is None else fastest.label,
        figures={way.label: _figures(way) for way in measurements.ways if way.timing},
    )
    _keep(event, config, console)
    if fastest is None and measurements.interrupted:
        console.say("interrupted before anything that could be written was measured", "yellow")
        raise KeyboardInterrupt
    if fastest is None:
        raise _no_export_error(measurements, tolerance)
    return _export_of(fastest, measurements, validation)


def _validation(config: Config, predictor: Predictor, tolerance: float) -> AccuracyCheck:
    from automl.data.scoring.evaluation import validation_part
    from automl.measure.tuning.measurement import AccuracyCheck

    part, classes = validation_part(config.data, predictor.read)
    if tuple(classes) != tuple(predictor.classes):
        raise ConfigError(
            "tune=true: the classes of the study's table are not those that the model learned "
            f"({len(classes)} and {len(predictor.classes)}): put the table of then back."
        )
    return AccuracyCheck.of(predictor, part, tolerance)


def _n_measured(ways: Sequence[InferenceWay]) -> int:
    return sum(not way.why_not for way in ways)


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _progress(
    console: CommandConsole, ways: Sequence[InferenceWay]
) -> Callable[[int, WayMeasurement], None]:
    def show(number: int, way: WayMeasurement) -> None:
        result = f"not measured: {way.why_not}"
        if way.timing is not None:
            result = f"{way.timing.p50_seconds * 1e6:,.0f} µs a row"
        console.say(f"{number + 1:>3} of {len(ways)}: {way.label}: {result}", "dim")

    return show


def _show(
    console: CommandConsole, measured: Sequence[WayMeasurement], validation: AccuracyCheck
) -> None:
    from automl.measure.tuning.measurement import fastest_way, fastest_way_for_many

    console.table(COLUMNS, [_row(way) for way in measured if way.timing])
    console.say(
        f"loss: on {counted(len(validation.part), 'validation row')}; the model's own is "
        f"{validation.loss:.6g}, and up to {validation.max_loss:.6g} is within tolerance="
        f"{validation.tolerance:g}",
        "dim",
    )
    for why, group in groupby((way for way in measured if not way.timing), lambda way: way.why_not):
        console.say(f"not measured: {'; '.join(way.label for way in group)}: {why}", "dim")
    best, many = fastest_way(measured), fastest_way_for_many(measured)
    if best is not None and many is not None:
        console.say(f"the fastest for one row: {best.label}", "bold")
        console.say(f"the fastest for many: {many[0].label}, {many[1]:,} at a time")


def _row(way: WayMeasurement) -> tuple[str, ...]:
    assert way.timing is not None
    assert way.loss is not None
    rates = way.timing.rows_per_second
    return (
        way.label,
        f"{way.timing.p50_seconds * 1e6:,.0f}",
        f"{way.timing.p99_seconds * 1e6:,.0f}",
        f"{rates[256]:,.0f}",
        f"{rates[16384]:,.0f}",
        f"{way.loss:.6g}",
        "" if way.is_accurate else "too far off",
    )


def _figures(way: WayMeasurement) -> dict[str, float]:
    assert way.timing is not None
    assert way.loss is not None
    rates = {f"rows_per_second@{n}": rate for n, rate in way.timing.rows_per_second.items()}
    p50, p99 = way.timing.p50_seconds, way.timing.p99_seconds
    return {"p50_seconds": p50, "p99_seconds": p99, "loss": way.loss, **rates}


def _keep(event: ExportTuned, config: Config, console: CommandConsole) -> None:
    """Keep the figures in the event log, and so in MLflow; a failure of either does not end the
    export."""
    directory = study_path(config.study)
    place = settle_place_unlocked(directory, config.study)
    if not record_evaluation(event, config):
        console.say("a sweep works on the study: the figures are in the export alone", "yellow")
        return
    try:
        deliver_evaluation(directory, config, place, say_on_stdout)
    except AutoMLError as error:
        console.say(str(error), "yellow")


def _no_export_error(measurements: TuningMeasurements, tolerance: float) -> AutoMLError:
    if any(way.is_file for way in measurements.ways):
        return AutoMLError(
            f"tune=true: what could be written is not within tolerance={tolerance:g} of the "
            "model's loss: allow more, or leave tune out."
        )
    return AutoMLError(
        "tune=true: nothing that could be written was measured, and the lines above say why: mend "
        "that, or leave tune out."
    )


def _export_of(
    chosen: WayMeasurement, measurements: TuningMeasurements, validation: AccuracyCheck
) -> FastestExport:
    from automl.export.package import TunedFile
    from automl.measure.tuning.measurement import draw_speeds

    written = measurements.files[chosen.label]
    assert written.file is not None
    assert written.format is not None
    figures = {
        "chosen": chosen.label,
        "loss_of_the_model": validation.loss,
        "tolerance": validation.tolerance,
        "ways": [_plain_way(way) for way in measurements.ways],
    }
    beside = {
        FILE: json.dumps(figures, indent=1).encode(),
        PICTURE: draw_speeds(measurements.ways, chosen.label),
    }
    tuned = TunedFile(
        file=written.file,
        threads=chosen.threads or 1,
        accept=validation.check if chosen.rounds else None,
        beside=beside,
    )
    return FastestExport(written.format, chosen.label, tuned, measurements.interrupted)


def _plain_way(way: WayMeasurement) -> dict[str, object]:
    """Return the measurement of a way for `tune.json`, where `within` says that it is accurate."""
    plain = asdict(way) | {"label": way.label}
    return plain | {"within": plain.pop("is_accurate")}
