"""The PyTorch device `wave`: `import wave32`, then `model.to("wave")`.

Where torch's plug-in autoload is on (its default), `import torch` alone is enough.
"""

from __future__ import annotations

_loaded = False


def _autoload() -> None:
    """Registers the device with torch; torch calls it at the end of its own import."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    from wave32 import _registration

    _registration.register()


_autoload()
