"""A study in PostgreSQL, on which sweeps of several machines work. Only owner of psycopg.

Whatever module is imported first, a missing psycopg is told of here.
"""

from automl.errors import ConfigError

try:
    import psycopg  # noqa: F401
except ImportError as missing:
    raise ConfigError(
        "study.storage=postgresql://…: needs psycopg, which is not installed; install it with: "
        "pip install 'automl-sweep[postgres]'"
    ) from missing
