"""What each command does, one file each; `cli/registry.py` names them."""
