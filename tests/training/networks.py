"""The network of the stored study `network`, under the name that its config has for it."""

from __future__ import annotations

from tests.models.networks import normed

__all__ = ["normed"]
