"""One trial does not meet another: what a trial changed in its process is put back, or ends it."""
