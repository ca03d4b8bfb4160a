"""Carries trials out: the threads of the pool, and what they ask and measure."""
