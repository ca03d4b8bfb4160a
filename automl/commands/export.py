"""`export`: writes a study's model as files that other programs run, after comparing their scores.

With `export.tune`, the ways of running the model are measured, and the fastest becomes the export.
The formats and the comparison are in `automl/export`, the measuring in `automl/measure/tuning`.
`register` and `release` take the export of their model from here.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import deliver_evaluation, record_evaluation
from automl.commands.models.which_model import (
    ModelChoice,
    TableModel,
    choose_model,
    open_model,
    outdated_model_note,
)
from automl.config import Config, ExportFormat
from automl.errors import AutoMLError, ConfigError
from automl.models.family import Family
from automl.record.studies import read_study, study_path
from automl.record.study_directory import settle_place_unlocked
from automl.record.study_files import StudyFiles
from automl.record.texts import counted, parse_json, say_on_stdout
from automl.terminal.console import CommandConsole, open_console
from automl.terminal.machine_output import write_answer
from automl.tracking.long_step import long_step
from automl.trial import CheckpointKind, ExportTuned

if TYPE_CHECKING:
    from automl.export import package
    from automl.export.package import ExportResult
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
    tuned: package.TunedFile
    interrupted: bool
    """Whether the measuring was interrupted: ways that were not measured may be faster."""


def find_fastest_export(
    config: Config, predictor: Predictor, model: str, console: CommandConsole, folder: Path
) -> FastestExport:
    """Measure the ways, show them, and keep the figures in the study and in MLflow; files are made
    in `folder`.

    `model` is the model's name. Ctrl-C ends the measuring, and the ways measured by then count.
    Raises AutoMLError where no way that can be exported is within the tolerance, and
    KeyboardInterrupt where none was measured by then.
    """
    from automl.measure.tuning.measurement import fastest_way, measure_ways, seconds_needed
    from automl.measure.tuning.ways import ways_here

    validation = _validation(config, predictor)
    ways = ways_here(predictor)
    console.say(
        f"measures {_n_measured(ways)} ways of running it, by one row to 16,384 at a time: about "
        f"{_rounded(seconds_needed(ways))} on a free machine; Ctrl-C takes the fastest by then"
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
        raise _no_export_error(measurements, config.export.tolerance)
    return _export_of(fastest, measurements, validation)


def _no_export_error(measurements: TuningMeasurements, tolerance: float) -> AutoMLError:
    if any(way.is_file for way in measurements.ways):
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
        f"{validation.loss:.6g}, and up to {validation.max_loss:.6g} is within export.tolerance="
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


def _n_measured(ways: Sequence[InferenceWay]) -> int:
    return sum(not way.why_not for way in ways)


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


INTERRUPTED = 130
N_ROWS = 1000
"""Number of rows of the study's table that the export and the model are compared on."""


def run(call: CommandCall) -> int:
    """Write the export and print the comparison with the model. Raises AutoMLError."""
    config = call.config
    console, path = open_console(), study_path(config.study)
    choice = choose_model(config, "export")

    from automl.data.tables.table_sources import raw_rows

    with long_step(f"loading PyTorch and {choice.file.name}", console.say):
        model = open_model(config, choice)
        predictor = model.predictor
        _check_format(config, predictor)
        rows = raw_rows(config.data, N_ROWS)
    with TemporaryDirectory(prefix="automl-export-") as folder:
        fastest = None
        if config.export.tune:
            fastest = find_fastest_export(config, predictor, model.name, console, Path(folder))
        kind = config.export.format if fastest is None else fastest.format
        target_path = config.export.to or StudyFiles(path).export(model.name, kind.value)
        console.say(f"{model.name} of {path.name}: {_way_text(kind, fastest)}, to {target_path}")
        if warning := outdated_model_note(config, model):
            console.say(warning, "yellow")
        with long_step("writing the export and comparing it with the model", console.say):
            result = _write_export(
                predictor, rows, target_path, kind, _model_facts(path, model), fastest
            )
    _say_parity(console, result, fastest, has_labels=bool(predictor.classes))
    text_readers = ("said.py",) if predictor.columns.readings else ()
    beside = [
        "schema.json",
        "reader.py",
        *text_readers,
        *(() if fastest is None else fastest.tuned.beside),
    ]
    console.say(
        f"{result.file} ({result.file.stat().st_size:,} bytes); beside it {', '.join(beside)}"
    )
    write_answer({"study": path.name, "model": model.name, "file": str(result.file)})
    return 0 if fastest is None or not fastest.interrupted else INTERRUPTED


def _way_text(kind: ExportFormat, fastest: FastestExport | None) -> str:
    format_text = f"export.format={kind.value}"
    return format_text if fastest is None else f"{format_text}, chosen: {fastest.label}"


def _write_export(
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
    console: CommandConsole,
    result: ExportResult,
    fastest: FastestExport | None,
    *,
    has_labels: bool,
) -> None:
    if fastest is not None and fastest.tuned.accept is not None:
        console.say(
            f"the export rounds: scores of {counted(result.n_rows, 'row')} of the table and "
            f"{result.n_odd} odd ones within {result.largest:.1g}, its loss within export.tolerance"
        )
        return
    agreement = f"scores within {result.largest:.1g}" + (", all labels the same" * has_labels)
    console.say(
        f"the export says what the model says: {counted(result.n_rows, 'row')} of the table, "
        f"{result.n_odd} odd ones, alone and 10,000 at once: {agreement}"
    )


def _check_format(config: Config, predictor: Predictor) -> None:
    """Raise ConfigError for a format that the model does not have; it names the best trial that has
    it."""
    kind, formats = config.export.format, predictor.export_formats
    if kind not in formats:
        reason = f"; {predictor.no_export_reason}" * bool(predictor.no_export_reason)
        listed = ", ".join(known.value for known in formats)
        raise ConfigError(
            f"export.format={kind.value}: models of this family have "
            f"{f'these: {listed}' if listed else 'none; automl.load reads them'}{reason}."
            f"{_best_trial_with_format(config)}"
        )


def _best_trial_with_format(config: Config) -> str:
    """Return a sentence that names the best trial with the format, in a study of several
    families."""
    family, path = config.model, study_path(config.study)
    assert isinstance(family, Family), "Hydra makes it by its schema"
    if family.choice is None:
        return ""
    for trial in read_study(path).ranking():
        has_format = config.export.format in family.of_trial(trial.params)[0].export_formats
        if has_format and StudyFiles(path).checkpoint(trial.number, CheckpointKind.BEST).exists():
            number, name = trial.number, trial.params[family.choice]
            return f" The best trial that has it is {number} ({name}): export.trial={number}."
    return ""


def _model_facts(path: Path, model: TableModel) -> dict[str, Any]:
    """Return the facts about the model that the export stores; `value` is the trial's by the
    study's metric, and None for an ensemble."""
    trial = read_study(path).trials.get(model.trial)
    return {
        "study": path.name,
        "trial": model.trial,
        "refit": model.refitted is not None,
        "params": dict(model.predictor.params),
        "value": None if trial is None or model.is_ensemble else trial.value,
        "model_file": {
            "name": model.file.name,
            "sha256": hashlib.sha256(model.file.read_bytes()).hexdigest(),
        },
    }


@dataclass(frozen=True)
class ServedPackage:
    """An export in ONNX on disk, which MLflow can serve."""

    folder: Path
    schema: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.schema["digest"])


def refuse_unservable_format(config: Config) -> None:
    """Raise ConfigError for a format that cannot be served; `export` itself checks the model."""
    if config.export.format is not ExportFormat.onnx:
        raise ConfigError(
            f"export.format={config.export.format.value}: a registered model is served by ONNX "
            "Runtime: leave export.format out."
        )


def package_folder(config: Config, model: str) -> Path:
    """Return the folder of the export of the model with this name, which may not exist yet."""
    default_folder = StudyFiles(study_path(config.study)).export(model, ExportFormat.onnx.value)
    return Path(config.export.to or default_folder).expanduser()


def find_package(folder: Path, file: Path) -> ServedPackage | None:
    """Return the export in the folder, if it is complete, and this version made it from the model
    `file`."""
    try:
        schema = parse_json((folder / "schema.json").read_text("utf-8"))
        is_valid = (
            schema["format"] == ExportFormat.onnx.value
            and schema["model_file"]["sha256"] == file_sha256(file)
            and schema["versions"]["automl"] == metadata.version("automl-sweep")
            and schema["digest"] == file_sha256(folder / schema["file"])
            and (folder / "reader.py").exists()
            and ("readings" not in schema or (folder / "said.py").exists())
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return ServedPackage(folder, schema) if is_valid else None


def make_package(config: Config, model: TableModel, choice: ModelChoice) -> ServedPackage:
    """Return the export of the model; it is made if there is none. Raises AutoMLError."""
    folder = package_folder(config, model.name)
    existing = find_package(folder, model.file)
    if existing is not None:
        return existing
    export_config = replace(
        config.export,
        trial=None if choice.trial is None else choice.trial.number,
        model=model.which,
        tune=False,  # the fastest format may be one that cannot be served
    )
    run(CommandCall(replace(config, export=export_config)))
    package = find_package(folder, model.file)
    if package is None:
        raise AutoMLError(f"{folder}: has changed while it was looked at: register again.")
    return package


def file_sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _plain_way(way: WayMeasurement) -> dict[str, object]:
    """Return the measurement of a way for `tune.json`, where `within` says that it is accurate."""
    plain = asdict(way) | {"label": way.label}
    return plain | {"within": plain.pop("is_accurate")}
