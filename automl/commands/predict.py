"""`predict`: scores a table of any size by a model of a study, chunk by chunk.

One chunk is read and one is written in threads while one is scored. The model is chosen in
`models/which_model.py`, the device in `models/row_scorer.py`.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from automl.commands.command_call import CommandCall
from automl.commands.models.row_scorer import RowScorer, make_scorer
from automl.commands.models.which_model import (
    TableModel,
    choose_model,
    open_model,
    outdated_model_note,
)
from automl.config.command_arguments import PredictArguments
from automl.config.which_models import parse_which
from automl.errors import ConfigError
from automl.record.output_file import find_output, open_output
from automl.record.studies import study_path
from automl.record.texts import counted
from automl.terminal.console import CommandConsole, open_console
from automl.terminal.machine_output import write_answer
from automl.tracking.long_step import LongStep, long_step

if TYPE_CHECKING:
    from automl.data.tables.chunked_table import ChunkedTable, TableChunk, UnreadRow
    from automl.data.unknown_cells import CellCounter
    from automl.models.predictor import Predictor

CSV, PARQUET = FORMATS = ".csv", ".parquet"
N_SHOWN = 5
"""Number of unreadable rows that are printed; all of them are in a file."""
T = TypeVar("T")


def run(call: CommandCall) -> int:
    """Write the file `to`, with a row for each row of `table`. Raises AutoMLError."""
    config, arguments = call.config, call.typed_arguments(PredictArguments)
    console, path = open_console(), study_path(config.study)
    input_path, output = _input_and_output(arguments)
    choice = choose_model(config, parse_which(arguments.which), "predict")

    from automl.data.tables.chunked_table import ChunkedTable
    from automl.data.unknown_cells import CellCounter

    with long_step(f"loading PyTorch and {choice.file.name}", console.say):
        model = open_model(config, choice)
    predictor, members_words = _choose_members(model, arguments.members)
    columns = predictor.columns
    table = ChunkedTable.at("table", input_path, columns.sources, arguments.keep)
    if warning := outdated_model_note(config, model):
        console.say(warning, "yellow")
    counter = CellCounter(columns, predictor.read_cells)
    scorer = make_scorer(
        predictor,
        config.devices,
        now=time.monotonic,
        say=console.say,
        read=counter.read,
    )
    progress = PredictProgress(console, counter, time.monotonic)
    with long_step(
        f"{model.name} of {path.name}{members_words} scores {input_path}", console.say
    ) as step:
        unread = _score(predictor, scorer, table, output, progress, step)
    progress.end(output, unread)
    write_answer({"output": str(output), "unread": None if unread is None else str(unread)})
    return 0


def _choose_members(model: TableModel, wanted: int | None) -> tuple[Predictor, str]:
    """Return the model with the wanted number of members, and words about it for the output. Raises
    ConfigError for a model without members."""
    if wanted is None:
        return model.predictor, ""
    n_all = len(model.predictor.params)
    if not model.is_ensemble:
        raise ConfigError(
            f"members={wanted}: {model.name} is no ensemble, of whose members some can be chosen: "
            "leave it out, or take which=ensemble."
        )
    if wanted >= n_all:
        return model.predictor, f", by all of its {counted(n_all, 'member')},"
    return model.predictor.of_heaviest(wanted), f", by {wanted} of its {counted(n_all, 'member')},"


def _input_and_output(arguments: PredictArguments) -> tuple[str, Path]:
    """Return the path of the table and the path of the scores. Raises ConfigError."""
    input_path, output = arguments.table, arguments.to
    for word, value, such_as in (("table", input_path, "rows"), ("to", output, "scores")):
        if not value:
            raise ConfigError(f"{word}: must be given, such as {word}={such_as}.csv")
    assert input_path is not None, "looked at above"
    assert output is not None
    output_path = Path(output).expanduser()
    if find_output("to", output) == Path(input_path).expanduser().resolve():
        raise ConfigError(f"to={output}: is the table itself; name another file.")
    if output_path.suffix.lower() not in FORMATS:
        raise ConfigError(f"to={output}: must end in {' or '.join(FORMATS)}.")
    find_output("to", _unread_rows_path(output_path))
    return input_path, output_path


def _unread_rows_path(output: Path) -> Path:
    """Return the file of the rows that have no scores."""
    return output.with_name(f"{output.name}.unread.csv")


def _score(
    predictor: Predictor,
    scorer: RowScorer,
    table: ChunkedTable,
    output: Path,
    progress: PredictProgress,
    step: LongStep,
) -> Path | None:
    """Write the scores, and beside them a file of the rows that have none, whose path is returned;
    None if every row has scores. Both files appear only when they are complete."""
    from automl.data.tables.chunked_table import open_scores_writer
    from automl.models.mean_model import leave_one_core

    numbers = predictor.columns.plain_numbers
    categories = [column.name for column in predictor.columns.own.categories]
    classes, kept_columns = predictor.classes, table.texts
    with ExitStack() as files:
        unread = UnreadRowsFile(_unread_rows_path(output), files)
        file = files.enter_context(open_output("to", output))
        parquet = output.suffix.lower() == PARQUET
        writer = files.enter_context(
            open_scores_writer(
                file, classes, kept_columns, parquet=parquet, threshold=predictor.threshold
            )
        )
        verbatim = predictor.columns.verbatim
        chunks = read_ahead(table.chunks(numbers, categories, verbatim))
        scored = ((chunk, scorer(chunk)) for chunk in chunks)
        written = write_behind(scored, lambda chunk_and_scores: writer.write(*chunk_and_scores))
        with leave_one_core(), closing(written):
            for chunk, _ in written:
                unread.write(chunk.unread)
                step.at(progress.after(chunk))
        progress.check(table)
    if unread.file is None:
        unread.path.unlink(missing_ok=True)  # a file of an earlier table
        return None
    return unread.path


class UnreadRowsFile:
    """The file that names the unreadable rows; it is created with the first of them."""

    def __init__(self, path: Path, files: ExitStack) -> None:
        self.path = path
        self.file: BinaryIO | None = None
        self._files = files

    def write(self, unread: tuple[UnreadRow, ...]) -> None:
        if not unread:
            return
        if self.file is None:
            self.file = self._files.enter_context(open_output("to", self.path))
            self.file.write(b"row,reason\n")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((row.where, row.reason) for row in unread)
        self.file.write(text.getvalue().encode())


class PredictProgress:
    """Counts the scored rows and prints how many of them, and of their cells, cannot be read."""

    def __init__(
        self, console: CommandConsole, counter: CellCounter, now: Callable[[], float]
    ) -> None:
        self._console, self._counter, self._now = console, counter, now
        self._began = now()
        self._n_rows = self._n_unread = 0
        self._first: list[UnreadRow] = []

    def after(self, chunk: TableChunk) -> str:
        """Count the chunk, and return how far the table is scored."""
        self._n_rows += chunk.n_rows
        self._n_unread += len(chunk.unread)
        self._first += chunk.unread[: N_SHOWN - len(self._first)]
        seconds_left = (self._now() - self._began) * (1 - chunk.share) / max(chunk.share, 1e-9)
        return f"{chunk.share:.0%}, {self._rows()}, about {seconds_left:.0f} s left"

    def check(self, table: ChunkedTable) -> None:
        """Raise ConfigError where no row could be scored, or no cell of a column is known."""
        if self._n_rows > self._n_unread:
            if refusal := self._counter.refusal():
                raise table.file.error(refusal)
            return
        first = "; ".join(f"{row.where}: {row.reason}" for row in self._first)
        only = self._n_rows == 1
        which = "its only row cannot" if only else f"none of its {self._n_rows:,} rows can"
        raise table.file.error(
            f"{which} be read ({first}): mend {'it' if only else 'them'}."
            if first
            else "has a header and no rows: give some to score."
        )

    def end(self, output: Path, unread: Path | None) -> None:
        seconds = self._now() - self._began
        self._console.say(f"{output}: {self._rows()} in {seconds:.1f} s")
        for note in self._counter.notes():
            self._console.say(note, "yellow")
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
        return counted(self._n_rows, "row")


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items; the next one is made in a thread while one is in use."""
    with ThreadPoolExecutor(1, "reading") as pool:
        ended = object()
        next_item = pool.submit(next, items, ended)
        while (item := next_item.result()) is not ended:
            next_item = pool.submit(next, items, ended)
            yield item  # type: ignore[misc]  # the mark of the end never gets here


def write_behind(items: Iterable[T], write: Callable[[T], None]) -> Generator[T]:
    """Yield the same items; each one is written in a thread while the next one is made.

    Raises an error of the writing with the next item, or at the end.
    """
    with ThreadPoolExecutor(1, "writing") as pool:
        writing: Future[None] | None = None
        for item in items:
            if writing is not None:
                writing.result()
            writing = pool.submit(write, item)
            yield item
        if writing is not None:
            writing.result()
