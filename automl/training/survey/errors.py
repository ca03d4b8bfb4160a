"""What ends a survey early."""

from __future__ import annotations


class SurveyOver(BaseException):  # BaseException: `except Exception` in an objective lets it pass
    """Raised in the objective when enough was seen."""
