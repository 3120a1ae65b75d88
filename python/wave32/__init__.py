"""The PyTorch device `wave`: `import wave32`, then `model.to("wave")`.

Where torch's plug-in autoload is on (its default) and torch has no GPU of its own, `import torch` alone is enough.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    raise ModuleNotFoundError(
        "the device `wave` needs PyTorch 2.10 or newer, and its CPU build (200 MB) is enough: "
        "pip install uv, then uv pip install torch --torch-backend=cpu",
        name="torch",
    ) from None

from wave32 import _registration

_registration.register()

from wave32._fuse import fuse  # noqa: E402

__all__ = ["fuse"]
