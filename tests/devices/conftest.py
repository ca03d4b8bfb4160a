"""The stub of NVML, for the tests of this folder."""

from tests.nvml_stub.fixtures import loaded_nvml_stub, nvml_library, nvml_stub

__all__ = ["loaded_nvml_stub", "nvml_library", "nvml_stub"]
