"""One sweep while it runs: the only room that knows all parts."""
