"""wave32's environment variables, as `variable` of crates/torch-logic/src/settings.rs reads them."""

from __future__ import annotations

import os


def variable(name: str) -> str | None:
    """The value of `WAVE32_...`, or of its older name that begins with `WAVE_`. An empty one counts as unset."""
    for known in (name, name.replace("WAVE32_", "WAVE_", 1)):
        value = os.environ.get(known, "")
        if value.strip():
            return value
    return None
