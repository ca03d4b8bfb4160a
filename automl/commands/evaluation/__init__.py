"""What `evaluate` is made of: which models, their scores as read, and where they are kept."""
