"""Says what MLflow is told of studies and trials, and how its UI shows them."""
