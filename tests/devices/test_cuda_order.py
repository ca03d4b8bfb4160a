"""What torch can use, told by a child. The children here are real, their torch is a stand-in."""

import sys

import pytest

from automl.devices.torch_gpus import torch_gpu_uuids
from automl.errors import ConfigError


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_the_order_is_kept_and_other_lines_are_not_taken() -> None:
    code = "print('GPU-b'); print('loading CUDA ...'); print('MIG-a'); print()"
    assert torch_gpu_uuids(python(code)) == ("GPU-b", "MIG-a")


def test_a_torch_that_breaks_is_refused_with_its_last_words() -> None:
    code = "import sys; sys.stderr.write('x\\n'); sys.exit('ImportError: libcudart.so')"
    with pytest.raises(ConfigError, match=r"ImportError: libcudart\.so\. Use devices.only=cpu"):
        torch_gpu_uuids(python(code))


def test_a_torch_that_dies_silently_is_refused_with_its_exit_code() -> None:
    with pytest.raises(ConfigError, match="exit code -9"):
        torch_gpu_uuids(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))


def test_a_torch_that_hangs_is_given_up() -> None:
    with pytest.raises(ConfigError, match=r"within 0\.2 s.*nvidia-smi.*devices.only=cpu"):
        torch_gpu_uuids(python("import signal; signal.pause()"), timeout_seconds=0.2)
