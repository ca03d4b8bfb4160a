"""What code within a trial uses: its context, reports, checkpoints, seeds and users' functions."""
