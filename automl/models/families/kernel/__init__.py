"""Smooth functions of few rows: a kernel whose lengths are learned."""
