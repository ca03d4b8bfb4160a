"""Models in MLflow: logged on runs, registered under a name, served without this package."""
