"""A study in PostgreSQL, on which sweeps of several machines work. Only owner of psycopg."""
