"""The parts of a table as files, for other tools: `data.split_to=DIR`.

`train.csv`, `validation.csv`, `test.csv`; `left.csv` has the training rows that `data.sweep_rows`
leaves out. Cells are as they were read, rows in the table's order.
"""

from __future__ import annotations

from pathlib import Path

from automl.data.source import Source
from automl.data.split import Split
from automl.errors import ConfigError
from automl.record.disk import make_folder, write_durably

PARTS = ("train", "validation", "test", "left")


def write_split(folder: Path, source: Source, split: Split) -> None:
    """Write the parts that have rows; a file that holds them already is left as it is.

    Raises ConfigError for one that holds something else, and where it cannot be written.
    """
    frame = source.frame.assign(**{source.target.name: source.cells})
    texts = {
        folder / f"{name}.csv": frame.iloc[rows].to_csv(index=False)
        for name in PARTS
        if len(rows := getattr(split, name))
    }
    try:
        make_folder(folder)
        for path in texts:
            _check_free(path, texts[path])
        for path, text in texts.items():
            if not path.exists():
                write_durably(path, text)
    except OSError as error:
        raise ConfigError(
            f"data.split_to={folder}: cannot be written ({error.strerror}): name another folder."
        ) from error


def _check_free(path: Path, text: str) -> None:
    """A table of the user's may have that name: `data.path` itself, even."""
    if path.exists() and path.read_bytes() != text.encode():
        raise ConfigError(
            f"data.split_to={path.parent}: {path.name} is there and holds something else, which is "
            "not written over: name another folder, or move that file away."
        )
