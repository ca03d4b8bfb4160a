"""What to try: the search space, the samplers, the pruners and the study. Only owner of optuna."""
