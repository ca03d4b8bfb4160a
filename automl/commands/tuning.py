"""`export.tune`: the ways of running a model are measured, and the fastest becomes the export."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.evaluation.keep import deliver, keep
from automl.config import Config, ExportFormat
from automl.errors import AutoMLError, ConfigError
from automl.record.place import settle_unlocked
from automl.record.studies import study_path
from automl.running.console import CommandConsole
from automl.tracking.say import say_on_stdout
from automl.trial import Tuned

if TYPE_CHECKING:
    from automl.training.export import package
    from automl.training.export.tuning.accuracy import Validation
    from automl.training.export.tuning.choice import Measured
    from automl.training.export.tuning.measuring import Seen
    from automl.training.export.tuning.workshop import Way
    from automl.training.predictor import Predictor

FILE, PICTURE = "tune.json", "tune.png"
COLUMNS = ("way", "p50 µs", "p99 µs", "rows/s of 256", "rows/s of 16,384", "loss", "")


@dataclass(frozen=True)
class Fastest:
    """Of the ways that an export can be."""

    format: ExportFormat
    label: str
    tuned: package.Tuned
    interrupted: bool
    """The measuring was: others may be faster."""


def fastest_export(
    config: Config, predictor: Predictor, model: str, console: CommandConsole, folder: Path
) -> Fastest:
    """Measure, show, and keep the figures in the study and in MLflow; files are made in `folder`.

    `model` is what the model is called. Ctrl-C ends the measuring, and what was seen by then
    counts. Raises AutoMLError where no way that an export can be is within the tolerance, and
    KeyboardInterrupt where none was measured by then.
    """
    from automl.training.export.tuning.choice import fastest
    from automl.training.export.tuning.measuring import measure, seconds_needed
    from automl.training.export.tuning.ways import ways_here

    validation = _validation(config, predictor)
    ways = ways_here(predictor)
    console.say(
        f"measures {_n_measured(ways)} ways of running it, by one row to 16,384 at a time: about "
        f"{_rounded(seconds_needed(ways))} on a free machine; Ctrl-C takes the fastest by then"
    )
    seen = measure(predictor, validation, ways, folder, _progress(console, ways))
    chosen = fastest(seen.ways, files=True)
    _show(console, seen.ways, validation)
    event = Tuned(
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


def _no_file(seen: Seen, tolerance: float) -> AutoMLError:
    if any(one.is_file for one in seen.ways):
        return AutoMLError(
            f"export.tune: what could be written is not within export.tolerance={tolerance:g} of "
            "the model's loss: allow more, or leave export.tune out."
        )
    return AutoMLError(
        "export.tune: nothing that could be written was measured, and the lines above say why: "
        "mend that, or leave export.tune out."
    )


def _validation(config: Config, predictor: Predictor) -> Validation:
    from automl.data.validation import validation_part
    from automl.training.export.tuning.accuracy import Validation

    part, classes = validation_part(config.data, predictor.read)
    if tuple(classes) != tuple(predictor.classes):
        raise ConfigError(
            "export.tune: the classes of the study's table are not those that the model learned "
            f"({len(classes)} and {len(predictor.classes)}): put the table of then back."
        )
    return Validation.of(predictor, part, config.export.tolerance)


def _progress(console: CommandConsole, ways: Sequence[Way]) -> Callable[[int, Measured], None]:
    def show(number: int, one: Measured) -> None:
        said = f"not measured: {one.why_not}"
        if one.timing is not None:
            said = f"{one.timing.p50_seconds * 1e6:,.0f} µs a row"
        console.say(f"{number + 1:>3} of {_n_measured(ways)}: {one.label}: {said}", "dim")

    return show


def _show(console: CommandConsole, seen: Sequence[Measured], validation: Validation) -> None:
    from automl.training.export.tuning.choice import fastest, fastest_for_many

    console.table(COLUMNS, [_row(one) for one in seen if one.timing])
    console.say(
        f"loss: on {len(validation.part):,} validation rows; the model's own is "
        f"{validation.loss:.6g}, and up to {validation.most:.6g} is within export.tolerance="
        f"{validation.tolerance:g}",
        "dim",
    )
    for why, group in groupby((one for one in seen if not one.timing), lambda one: one.why_not):
        console.say(f"not measured: {'; '.join(one.label for one in group)}: {why}", "dim")
    best, many = fastest(seen), fastest_for_many(seen)
    if best is not None and many is not None:
        console.say(f"the fastest for one row: {best.label}", "bold")
        console.say(f"the fastest for many: {many[0].label}, {many[1]:,} at a time")


def _row(one: Measured) -> tuple[str, ...]:
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


def _figures(one: Measured) -> dict[str, float]:
    assert one.timing is not None
    assert one.loss is not None
    rates = {f"rows_per_second@{n}": rate for n, rate in one.timing.rows_per_second.items()}
    p50, p99 = one.timing.p50_seconds, one.timing.p99_seconds
    return {"p50_seconds": p50, "p99_seconds": p99, "loss": one.loss, **rates}


def _keep(event: Tuned, config: Config, console: CommandConsole) -> None:
    """In the event log, and so in MLflow; that neither is there ends no export."""
    directory = study_path(config.study)
    place = settle_unlocked(directory, config.study)
    if not keep(event, config):
        console.say("a sweep works on the study: the figures are in the export alone", "yellow")
        return
    try:
        deliver(directory, config, place, say_on_stdout)
    except AutoMLError as error:
        console.say(str(error), "yellow")


def _export_of(chosen: Measured, seen: Seen, validation: Validation) -> Fastest:
    from automl.training.export.package import Tuned as TunedFile
    from automl.training.export.tuning.drawing import draw

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
        PICTURE: draw(seen.ways, chosen.label),
    }
    tuned = TunedFile(
        file=made.file,
        threads=chosen.threads or 1,
        accept=validation.check if chosen.rounds else None,
        beside=beside,
    )
    return Fastest(made.format, chosen.label, tuned, seen.interrupted)


def _n_measured(ways: Sequence[Way]) -> int:
    return sum(not way.why_not for way in ways)


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
