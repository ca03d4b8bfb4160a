"""The address of a study that Optuna keeps: `sqlite:///FILE.db:NAME` and its like.

The file is apart from `optuna_source.py`, which loads Optuna: the command line asks it for each
line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automl.record.secrets import mask_urls

SQLITE = "sqlite:///"
ADDRESS_FORMS = "sqlite:///FILE.db:NAME, postgresql://…/DATABASE:NAME or JOURNAL.log:NAME"
_JOURNAL_ENDINGS = (".log", ".jsonl", ".journal")
_SQLITE_ENDINGS = (".db", ".sqlite", ".sqlite3")


@dataclass(frozen=True)
class OptunaSource:
    """The place of an Optuna study: a storage, and the study's name in it."""

    storage: str
    """A URL, or the path of a journal file."""
    name: str | None = None
    """The name of the study; None: the storage has one study."""
    key: str = "from"
    """The setting that names it."""

    @property
    def given(self) -> str:
        """The setting with the storage, for messages."""
        return f"{self.key}={self.where}"

    @property
    def where(self) -> str:
        """The storage without credentials, for messages."""
        return mask_urls(self.storage)


def parse_optuna_source(text: str) -> OptunaSource | None:
    """Return the source that a text names; None: the text is no address of an Optuna storage."""
    if text.startswith(SQLITE):
        path, name = _split_name(text.removeprefix(SQLITE))
        return OptunaSource(SQLITE + path, name)
    if "://" in text:
        address, question, options = text.partition("?")
        head, slash, database = address.rpartition("/")
        database, _, name = database.partition(":")
        options, _, last = options.partition(":")  # the name may stand at the very end
        return OptunaSource(head + slash + database + question + options, name or last or None)
    path, name = _split_name(text)
    if path.endswith(_SQLITE_ENDINGS):
        return OptunaSource(SQLITE + path, name)
    return OptunaSource(path, name) if path.endswith(_JOURNAL_ENDINGS) else None


def _split_name(text: str) -> tuple[str, str | None]:
    """Return the path and the study's name of `PATH:NAME`; an existing file ends the path."""
    if Path(text).exists() or ":" not in text:
        return text, None
    parts = text.split(":")
    for n in range(1, len(parts)):
        path = ":".join(parts[:n])
        if Path(path).is_file():
            return path, ":".join(parts[n:]) or None
    return parts[0], ":".join(parts[1:]) or None
