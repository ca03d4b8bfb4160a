"""Accounts for the memory of devices: reservations in a ledger, one account for each device."""
