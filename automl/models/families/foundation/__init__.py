"""Foundation models, whose weights come from a file of the user."""
