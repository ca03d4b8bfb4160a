"""The search: its space, the samplers, the pruners and the study. Only owner of optuna."""
