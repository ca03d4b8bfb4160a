"""What tests of all parts use."""

from __future__ import annotations

from hypothesis import settings

from tests.lossy_disk import lossy_disk

__all__ = ["lossy_disk"]

# `make check` says the same of the same tree each time; `make soak` looks further.
settings.register_profile("check", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None, print_blob=True)
settings.load_profile("check")
