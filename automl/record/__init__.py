"""What is kept of a study: its directory, its event log, and texts fit to be kept."""
