"""The stored record of a study: its directory, its event log, and the texts written to them."""
