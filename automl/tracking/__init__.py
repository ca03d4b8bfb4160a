"""Where results go: the event log, and the process that shows it in MLflow."""
