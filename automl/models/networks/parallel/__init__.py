"""One network trained by several processes, each with a share of every batch."""
