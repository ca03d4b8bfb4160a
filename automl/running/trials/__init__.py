"""Carries trials out: the sweep's runner, its pool threads, and what they ask and measure."""
