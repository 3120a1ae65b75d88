"""The PyTorch device `wave`: `import wave32`, then `model.to("wave")`.

Where torch's plug-in autoload is on (its default) and torch has no GPU of its own, `import torch` alone is enough.
"""

from __future__ import annotations

from wave32 import _registration

_registration.register()

from wave32._fuse import fuse  # noqa: E402

__all__ = ["fuse"]
