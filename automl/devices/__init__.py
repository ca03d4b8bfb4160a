"""Reads the hardware: memory, load and tenants of GPUs, memory and cores of the machine."""
