"""How a trial trains: objectives, built-in networks, checkpoints, and models that predict."""
