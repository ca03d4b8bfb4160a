"""Many networks in one, which share all but what tells them apart: `model=tabm`."""
