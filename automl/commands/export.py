"""`export_model`: a study's model as files that other programs run, shown to say what the model
says.

`export.tune`: the ways of running a model are measured, and the fastest becomes the export.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from automl.commands.models.study_opening import deliver_evaluation, record_evaluation
from automl.commands.models.which_model import TableModel, choose_model, open_model, outdated
from automl.config import Config, ExportFormat
from automl.errors import AutoMLError, ConfigError
from automl.models.family import Family
from automl.record.studies import read_study, study_path
from automl.record.study_files import StudyFiles
from automl.record.study_place import settle_place_unlocked
from automl.record.texts import say_on_stdout
from automl.running.display.console import CommandConsole, open_console
from automl.tracking.long_step import long_step
from automl.trial import CheckpointKind, ExportTuned

if TYPE_CHECKING:
    from automl.export import package
    from automl.export.package import ExportResult
    from automl.measure.tuning.choice import WayMeasurement
    from automl.measure.tuning.measurement import AccuracyCheck, TuningMeasurements
    from automl.measure.tuning.workshop import InferenceWay
    from automl.models.predictor import Predictor

FILE, PICTURE = "tune.json", "tune.png"
COLUMNS = ("way", "p50 µs", "p99 µs", "rows/s of 256", "rows/s of 16,384", "loss", "")


@dataclass(frozen=True)
class FastestExport:
    """Of the ways that an export can be."""

    format: ExportFormat
    label: str
    tuned: package.TunedExportFile
    interrupted: bool
    """The measuring was: others may be faster."""


def fastest_export(
    config: Config, predictor: Predictor, model: str, console: CommandConsole, folder: Path
) -> FastestExport:
    """Measure, show, and keep the figures in the study and in MLflow; files are made in `folder`.

    `model` is what the model is called. Ctrl-C ends the measuring, and what was seen by then
    counts. Raises AutoMLError where no way that an export can be is within the tolerance, and
    KeyboardInterrupt where none was measured by then.
    """
    from automl.measure.tuning.choice import fastest_way
    from automl.measure.tuning.measurement import measure_ways, seconds_needed
    from automl.measure.tuning.ways import ways_here

    validation = _validation(config, predictor)
    ways = ways_here(predictor)
    console.say(
        f"measures {_n_measured(ways)} ways of running it, by one row to 16,384 at a time: about "
        f"{_rounded(seconds_needed(ways))} on a free machine; Ctrl-C takes the fastest by then"
    )
    seen = measure_ways(predictor, validation, ways, folder, _progress(console, ways))
    chosen = fastest_way(seen.ways, files=True)
    _show(console, seen.ways, validation)
    event = ExportTuned(
        time=time.time(),
        model=model,
        chosen="" if chosen is None else chosen.label,
        figures={one.label: _figures(one) for one in seen.ways if one.timing},
    )
    _keep(event, config, console)
    if chosen is None and seen.interrupted:
        console.say("interrupted before anything that could be written was measured", "yellow")
        raise KeyboardInterrupt
    if chosen is None:
        raise _no_file(seen, config.export.tolerance)
    return _export_of(chosen, seen, validation)


def _no_file(seen: TuningMeasurements, tolerance: float) -> AutoMLError:
    if any(one.is_file for one in seen.ways):
        return AutoMLError(
            f"export.tune: what could be written is not within export.tolerance={tolerance:g} of "
            "the model's loss: allow more, or leave export.tune out."
        )
    return AutoMLError(
        "export.tune: nothing that could be written was measured, and the lines above say why: "
        "mend that, or leave export.tune out."
    )


def _validation(config: Config, predictor: Predictor) -> AccuracyCheck:
    from automl.data.scoring.evaluation import validation_part
    from automl.measure.tuning.measurement import AccuracyCheck

    part, classes = validation_part(config.data, predictor.read)
    if tuple(classes) != tuple(predictor.classes):
        raise ConfigError(
            "export.tune: the classes of the study's table are not those that the model learned "
            f"({len(classes)} and {len(predictor.classes)}): put the table of then back."
        )
    return AccuracyCheck.of(predictor, part, config.export.tolerance)


def _progress(
    console: CommandConsole, ways: Sequence[InferenceWay]
) -> Callable[[int, WayMeasurement], None]:
    def show(number: int, one: WayMeasurement) -> None:
        said = f"not measured: {one.why_not}"
        if one.timing is not None:
            said = f"{one.timing.p50_seconds * 1e6:,.0f} µs a row"
        console.say(f"{number + 1:>3} of {_n_measured(ways)}: {one.label}: {said}", "dim")

    return show


def _show(
    console: CommandConsole, seen: Sequence[WayMeasurement], validation: AccuracyCheck
) -> None:
    from automl.measure.tuning.choice import fastest_way, fastest_way_for_many

    console.table(COLUMNS, [_row(one) for one in seen if one.timing])
    console.say(
        f"loss: on {len(validation.part):,} validation rows; the model's own is "
        f"{validation.loss:.6g}, and up to {validation.most:.6g} is within export.tolerance="
        f"{validation.tolerance:g}",
        "dim",
    )
    for why, group in groupby((one for one in seen if not one.timing), lambda one: one.why_not):
        console.say(f"not measured: {'; '.join(one.label for one in group)}: {why}", "dim")
    best, many = fastest_way(seen), fastest_way_for_many(seen)
    if best is not None and many is not None:
        console.say(f"the fastest for one row: {best.label}", "bold")
        console.say(f"the fastest for many: {many[0].label}, {many[1]:,} at a time")


def _row(one: WayMeasurement) -> tuple[str, ...]:
    assert one.timing is not None
    assert one.loss is not None
    rates = one.timing.rows_per_second
    return (
        one.label,
        f"{one.timing.p50_seconds * 1e6:,.0f}",
        f"{one.timing.p99_seconds * 1e6:,.0f}",
        f"{rates[256]:,.0f}",
        f"{rates[16384]:,.0f}",
        f"{one.loss:.6g}",
        "" if one.within else "too far off",
    )


def _figures(one: WayMeasurement) -> dict[str, float]:
    assert one.timing is not None
    assert one.loss is not None
    rates = {f"rows_per_second@{n}": rate for n, rate in one.timing.rows_per_second.items()}
    p50, p99 = one.timing.p50_seconds, one.timing.p99_seconds
    return {"p50_seconds": p50, "p99_seconds": p99, "loss": one.loss, **rates}


def _keep(event: ExportTuned, config: Config, console: CommandConsole) -> None:
    """In the event log, and so in MLflow; that neither is there ends no export."""
    directory = study_path(config.study)
    place = settle_place_unlocked(directory, config.study)
    if not record_evaluation(event, config):
        console.say("a sweep works on the study: the figures are in the export alone", "yellow")
        return
    try:
        deliver_evaluation(directory, config, place, say_on_stdout)
    except AutoMLError as error:
        console.say(str(error), "yellow")


def _export_of(
    chosen: WayMeasurement, seen: TuningMeasurements, validation: AccuracyCheck
) -> FastestExport:
    from automl.export.package import TunedExportFile as TunedFile
    from automl.measure.tuning.choice import draw_speeds

    made = seen.files[chosen.label]
    assert made.file is not None
    assert made.format is not None
    figures = {
        "chosen": chosen.label,
        "loss_of_the_model": validation.loss,
        "tolerance": validation.tolerance,
        "ways": [asdict(one) | {"label": one.label} for one in seen.ways],
    }
    beside = {
        FILE: json.dumps(figures, indent=1).encode(),
        PICTURE: draw_speeds(seen.ways, chosen.label),
    }
    tuned = TunedFile(
        file=made.file,
        threads=chosen.threads or 1,
        accept=validation.check if chosen.rounds else None,
        beside=beside,
    )
    return FastestExport(made.format, chosen.label, tuned, seen.interrupted)


def _n_measured(ways: Sequence[InferenceWay]) -> int:
    return sum(not way.why_not for way in ways)


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


INTERRUPTED = 130
N_ROWS = 1000
"""Of the study's table, to compare the export with the model on."""


def run(config: Config, stored_config: str) -> int:
    """Write the export and say what was compared. Raises AutoMLError."""
    console, path = open_console(), study_path(config.study)
    choice = choose_model(config, "export")

    from automl.data.tables.table_sources import raw_rows

    with long_step(f"loading PyTorch and {choice.file.name}", console.say):
        model = open_model(config, choice)
        predictor = model.predictor
        _check_format(config, predictor.export_formats)
        rows = raw_rows(config.data, N_ROWS)
    with TemporaryDirectory(prefix="automl-export-") as folder:
        fastest = None
        if config.export.tune:
            fastest = fastest_export(config, predictor, model.name, console, Path(folder))
        kind = config.export.format if fastest is None else fastest.format
        to = config.export.to or StudyFiles(path).export(model.name, kind.value)
        console.say(f"{model.name} of {path.name}: {_way(kind, fastest)}, to {to}")
        if late := outdated(config, model):
            console.say(late, "yellow")
        with long_step("writing the export and comparing it with the model", console.say):
            done = _written(predictor, rows, to, kind, _about(path, model), fastest)
    _say_parity(console, done, fastest, has_labels=bool(predictor.classes))
    said = ("said.py",) if predictor.columns.readings else ()
    beside = ["schema.json", "reader.py", *said, *(() if fastest is None else fastest.tuned.beside)]
    console.say(f"{done.file} ({done.file.stat().st_size:,} bytes); beside it {', '.join(beside)}")
    return 0 if fastest is None or not fastest.interrupted else INTERRUPTED


def _way(kind: ExportFormat, fastest: FastestExport | None) -> str:
    said = f"export.format={kind.value}"
    return said if fastest is None else f"{said}, chosen: {fastest.label}"


def _written(
    predictor: Predictor,
    rows: Sequence[Mapping[str, Any]],
    to: str | Path,
    kind: ExportFormat,
    about: Mapping[str, Any],
    fastest: FastestExport | None,
) -> ExportResult:
    from automl.export.package import export_model

    tuned = None if fastest is None else fastest.tuned
    try:
        return export_model(predictor, rows, Path(to).expanduser(), kind, about, tuned=tuned)
    except OSError as error:
        raise AutoMLError(f"export.to={to}: cannot be written ({error}).") from error


def _say_parity(
    console: CommandConsole, done: ExportResult, fastest: FastestExport | None, *, has_labels: bool
) -> None:
    if fastest is not None and fastest.tuned.accept is not None:
        console.say(
            f"the export rounds: scores of {done.n_rows:,} rows of the table and {done.n_odd} odd "
            f"ones within {done.largest:.1g}, its loss within export.tolerance"
        )
        return
    same = f"scores within {done.largest:.1g}" + (", all labels the same" * has_labels)
    console.say(
        f"the export says what the model says: {done.n_rows:,} rows of the table, {done.n_odd} odd "
        f"ones, alone and 10,000 at once: {same}"
    )


def _check_format(config: Config, formats: Sequence[ExportFormat]) -> None:
    """Raises ConfigError for one that the model does not have, which names the best trial that
    has it."""
    kind = config.export.format
    if kind not in formats:
        listed = ", ".join(known.value for known in formats)
        raise ConfigError(
            f"export.format={kind.value}: models of this family have "
            f"{f'these: {listed}' if listed else 'none; automl.load reads them'}."
            f"{_which_has(config)}"
        )


def _which_has(config: Config) -> str:
    """Of a study of several families: what to name instead."""
    family, path = config.model, study_path(config.study)
    assert isinstance(family, Family), "Hydra makes it by its schema"
    if family.choice is None:
        return ""
    for trial in read_study(path).ranking():
        has = config.export.format in family.of_trial(trial.params)[0].export_formats
        if has and StudyFiles(path).checkpoint(trial.number, CheckpointKind.BEST).exists():
            number, name = trial.number, trial.params[family.choice]
            return f" The best trial that has it is {number} ({name}): export.trial={number}."
    return ""


def _about(path: Path, model: TableModel) -> dict[str, Any]:
    """Which model it is; `value` is the trial's by the study's metric, and none of an ensemble."""
    trial = read_study(path).trials.get(model.trial)
    return {
        "study": path.name,
        "trial": model.trial,
        "refit": model.refitted is not None,
        "params": dict(model.predictor.params),
        "value": None if trial is None or model.joined else trial.value,
        "model_file": {
            "name": model.file.name,
            "sha256": hashlib.sha256(model.file.read_bytes()).hexdigest(),
        },
    }
