"""What `register` is made of: the export that is served, its rows, and which alias it gets."""
