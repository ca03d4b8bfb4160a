"""A file that a setting names, and the refusal of one that cannot be read.

The file stands alone so that a wrong path is refused before pandas is loaded.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from automl.errors import ConfigError


@dataclass(frozen=True)
class NamedFile:
    """A file of a table on disk. Messages name it by the setting that it came from."""

    key: str
    """The setting that names the file, such as `data.path`."""
    path: Path

    @classmethod
    def at(cls, key: str, path: str) -> Self:
        """Return the file at `path`. Raises ConfigError unless it is readable and not empty."""
        file = cls(key, Path(path).expanduser())
        if file.path.is_dir():
            raise file.error("is a folder: name the CSV or Parquet file in it.")
        try:
            status = file.path.stat()
            if not stat.S_ISREG(status.st_mode):  # to open a pipe would wait for its writer
                raise file.error("is a pipe or a device: write the table into a file.")
            file.path.open("rb").close()
        except FileNotFoundError as error:
            raise file.error(
                f"there is no such file ({file.path.absolute()}): check the path."
            ) from error
        except OSError as error:
            raise file.error(f"cannot be read ({error.strerror}): check the file.") from error
        if status.st_size == 0:
            raise file.empty()
        return file

    def error(self, rest: str) -> ConfigError:
        """Return an error whose message is `data.path=x.csv: ` and the rest."""
        return ConfigError(f"{self.key}={self.path}: {rest}")

    def empty(self) -> ConfigError:
        return self.error("is empty: a table needs a header line and rows.")
