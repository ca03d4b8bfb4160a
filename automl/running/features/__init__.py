"""What a sweep does besides its trials: ensemble, refit, scores, report page, notices and more."""
