"""PostgreSQL for all tests of the part."""

from tests.postgres import database, postgres

__all__ = ["database", "postgres"]
