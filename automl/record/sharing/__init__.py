"""A study in PostgreSQL, which sweeps on several machines work on. Only owner of psycopg."""
