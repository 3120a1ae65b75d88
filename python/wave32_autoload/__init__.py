"""What torch loads at the end of its own import: `wave32`, unless torch has a GPU of its own here.

torch serves one accelerator a process. Where its CUDA or ROCm finds a card, `wave` waits for an explicit `import wave32`,
which then takes that place. Under `wave32 run` (`WAVE32_CUDA=wave`) it is taken at once, and scripts' `cuda` with it.
"""

import os


def load() -> None:
    """The entry point `torch.backends`."""
    import torch

    if os.environ.get("WAVE32_CUDA") == "wave":
        import wave32
        from wave32 import _cuda

        _cuda.enable()
    elif not torch.cuda.is_available():
        import wave32  # noqa: F401
