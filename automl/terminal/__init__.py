"""Shows a sweep: the live table, plain lines, notebooks, and the views that commands read."""
