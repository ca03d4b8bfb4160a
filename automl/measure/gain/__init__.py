"""How long a trial's steps take, one way of training it and another; in a process of its own."""
