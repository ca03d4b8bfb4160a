"""Shows studies in MLflow: delivery of the event log, run views, trials' own logging, registry."""
