"""What the hardware says: memory, load and tenants of GPUs, memory and cores of the machine."""
