"""One sweep while it runs. This package alone knows all parts of a sweep, and wires them."""
