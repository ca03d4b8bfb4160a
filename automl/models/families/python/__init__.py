"""A network of the user's own: `model=python model.target=module:build`."""
