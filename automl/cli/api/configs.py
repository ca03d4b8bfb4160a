"""What a Hydra application of the user's own calls before it composes."""

from __future__ import annotations


def register_configs() -> None:
    """Let Hydra applications of this process compose our settings as a part of their own.

    Call it before `@hydra.main` composes: at the top of the program, or just before `main()`. Then
    `defaults: [/sweep@automl, _self_]` in the application's config puts all settings of a sweep,
    checked by type, below its key `automl`, and `automl.sweep(cfg.automl)` runs it. May be called
    again. Hydra programs that do not call it see nothing of ours.
    """
    from automl.cli.application import register

    register()
