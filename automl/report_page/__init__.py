"""The report of a study: one HTML page that opens without a server."""
