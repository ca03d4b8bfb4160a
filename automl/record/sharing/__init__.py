"""A study in PostgreSQL, on which sweeps of several machines work. Only owner of psycopg.

A missing psycopg is reported here, whichever module is imported first.
"""

from automl.errors import ConfigError

try:
    import psycopg  # noqa: F401
except ImportError as missing:
    raise ConfigError(
        "study.storage=postgresql://…: needs psycopg, which is not installed; install it with: "
        "pip install 'automl-sweep[postgres]'"
    ) from missing
