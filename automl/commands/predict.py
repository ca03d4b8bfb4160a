"""`predict`: a table of any size scored by a model of a study."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from automl.commands.models.row_scorer import RowScorer, make_scorer
from automl.commands.models.which_model import TableModel, choose_model, open_model, outdated
from automl.config import Config
from automl.errors import AutoMLError, ConfigError
from automl.record.disk import open_replacing
from automl.record.studies import study_path
from automl.running.display.console import CommandConsole, open_console
from automl.tracking.long_step import LongStep, long_step

if TYPE_CHECKING:
    from automl.data.tables.chunked_table import ChunkedTable, TableChunk, UnreadRow
    from automl.models.predictor import Predictor

CSV, PARQUET = FORMATS = ".csv", ".parquet"
N_SHOWN = 5
"""Rows that cannot be read, on the screen; all are in a file."""
T = TypeVar("T")


def run(config: Config, stored_config: str) -> int:
    """Write `predict.output`, a row for each of `predict.input`. Raises AutoMLError."""
    console, path = open_console(), study_path(config.study)
    given, output = _given(config)
    choice = choose_model(config, "predict")

    from automl.data.tables.chunked_table import ChunkedTable

    with long_step(f"loading PyTorch and {choice.file.name}", console.say):
        model = open_model(config, choice)
    predictor, whose = _of_members(model, config.predict.members)
    columns = predictor.columns
    table = ChunkedTable.at("predict.input", given, columns.sources, config.predict.keep)
    if late := outdated(config, model):
        console.say(late, "yellow")
    by = make_scorer(
        predictor, config.predict.device, config.devices, now=time.monotonic, say=console.say
    )
    progress = PredictProgress(console, time.monotonic)
    try:
        with long_step(f"{model.name} of {path.name}{whose} scores {given}", console.say) as step:
            unread = _score(predictor, by, table, output, progress, step)
    except OSError as error:
        raise AutoMLError(f"predict.output={output}: cannot be written ({error}).") from error
    progress.end(output, unread)
    return 0


def _of_members(model: TableModel, wanted: int | None) -> tuple[Predictor, str]:
    """By so many members as are wanted, and what to say of it. Raises ConfigError for a model that
    has none."""
    if wanted is None:
        return model.predictor, ""
    n_all = len(model.predictor.params)
    if not model.joined:
        raise ConfigError(
            f"predict.members={wanted}: {model.name} is no ensemble, of whose members some can be "
            "chosen: leave it out, or take predict.model=ensemble."
        )
    if wanted >= n_all:
        return model.predictor, f", by all of its {n_all} members,"
    return model.predictor.of_heaviest(wanted), f", by {wanted} of its {n_all} members,"


def _given(config: Config) -> tuple[str, Path]:
    """Where the table is, and where the scores go. Raises ConfigError."""
    given, output = config.predict.input, config.predict.output
    for key, value, such_as in (("input", given, "rows"), ("output", output, "scores")):
        if not value:
            raise ConfigError(f"predict.{key}: must be given, such as predict.{key}={such_as}.csv")
    assert given is not None, "looked at above"
    assert output is not None
    to = Path(output).expanduser()
    if not to.parent.is_dir() or (to.exists() and not to.is_file()):  # a device would be replaced
        raise ConfigError(f"predict.output={output}: must be a file in a folder that is there.")
    if to.suffix.lower() not in FORMATS:
        raise ConfigError(f"predict.output={output}: must end in {' or '.join(FORMATS)}.")
    if to.exists() and Path(given).expanduser().exists() and to.samefile(Path(given).expanduser()):
        raise ConfigError(f"predict.output={output}: is the table itself; name another file.")
    return given, to


def _score(
    predictor: Predictor,
    by: RowScorer,
    table: ChunkedTable,
    output: Path,
    progress: PredictProgress,
    step: LongStep,
) -> Path | None:
    """Write the scores, and beside them the rows without, whose file comes back; None: all have
    some. Both take their places whole, in the end."""
    from automl.data.tables.scored_rows import scores_writer
    from automl.models.mean_model import leave_one_core

    numbers = predictor.columns.plain_numbers
    categories = [column.name for column in predictor.columns.categories]
    classes, kept = predictor.classes, table.texts
    with ExitStack() as files:
        unread = UnreadRowsFile(output.with_name(f"{output.name}.unread.csv"), files)
        file = files.enter_context(open_replacing(output))
        parquet = output.suffix.lower() == PARQUET
        writer = files.enter_context(
            scores_writer(*(file, classes, kept), parquet=parquet, threshold=predictor.threshold)
        )
        with leave_one_core(), BackgroundThread("writing") as written:
            verbatim = predictor.columns.verbatim
            for chunk in read_ahead(table.chunks(numbers, categories, verbatim)):
                written.do(partial(writer.write, chunk, by(chunk)))
                unread.write(chunk.unread)
                step.at(progress.after(chunk))
        progress.check(table)
    if unread.file is None:
        unread.path.unlink(missing_ok=True)  # of an earlier table
        return None
    return unread.path


class UnreadRowsFile:
    """Names the rows that cannot be read; there is none while all can."""

    def __init__(self, path: Path, files: ExitStack) -> None:
        self.path = path
        self.file: BinaryIO | None = None
        self._files = files

    def write(self, unread: tuple[UnreadRow, ...]) -> None:
        if not unread:
            return
        if self.file is None:
            self.file = self._files.enter_context(open_replacing(self.path))
            self.file.write(b"row,reason\n")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((row.where, row.reason) for row in unread)
        self.file.write(text.getvalue().encode())


class PredictProgress:
    """Counts the rows that are scored, and tells how many of them cannot be read."""

    def __init__(self, console: CommandConsole, now: Callable[[], float]) -> None:
        self._console, self._now = console, now
        self._began = now()
        self._n_rows = self._n_unread = 0
        self._first: list[UnreadRow] = []

    def after(self, chunk: TableChunk) -> str:
        """Count the chunk, and return how far the table is scored."""
        self._n_rows += chunk.n_rows
        self._n_unread += len(chunk.unread)
        self._first += chunk.unread[: N_SHOWN - len(self._first)]
        left = (self._now() - self._began) * (1 - chunk.share) / max(chunk.share, 1e-9)
        return f"{chunk.share:.0%}, {self._rows()}, about {left:.0f} s left"

    def check(self, table: ChunkedTable) -> None:
        """Raises ConfigError where there is nothing to score."""
        if self._n_rows > self._n_unread:
            return
        first = "; ".join(f"{row.where}: {row.reason}" for row in self._first)
        raise table.file.error(
            f"none of its {self._n_rows} rows can be read ({first}): mend them."
            if first
            else "has a header and no rows: give some to score."
        )

    def end(self, output: Path, unread: Path | None) -> None:
        seconds = self._now() - self._began
        self._console.say(f"{output}: {self._rows()} in {seconds:.1f} s")
        if unread is None:
            return
        for row in self._first:
            self._console.say(f"  {row.where}: {row.reason}", "yellow")
        more = self._n_unread - len(self._first)
        self._console.say(
            f"{self._n_unread:,} of them cannot be read and have empty scores"
            f"{f' ({more:,} more are' if more else ' (they are'} named in {unread})",
            "yellow",
        )

    def _rows(self) -> str:
        return f"{self._n_rows:,} row{'s' * (self._n_rows != 1)}"


class BackgroundThread(AbstractContextManager["BackgroundThread"]):
    """Does one thing after the other in a thread, one of them being behind at most; what one raises
    is raised by the next call, or at the end."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        self._wait()
        self._last = self._pool.submit(work)

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if error is None:
            self._wait()


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same, the next one being made in a thread while one is worked on."""
    with ThreadPoolExecutor(1, "reading") as pool:
        ended = object()
        coming = pool.submit(next, items, ended)
        while (item := coming.result()) is not ended:
            coming = pool.submit(next, items, ended)
            yield item  # type: ignore[misc]  # not the mark of the end
