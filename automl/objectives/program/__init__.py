"""Any program as objective: how it is told its params, and its metrics found in what it prints."""
