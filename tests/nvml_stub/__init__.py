"""A stub of NVIDIA's NVML library for the real py3nvml binding.

`stub.c` is the library, `stub.py` compiles it and drives its state, `fixtures.py` gives both to
tests.
"""
