"""The version of torch, and its libraries of operators: what every registration needs."""

from __future__ import annotations

import torch

# Of torch.
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))

# Libraries live as long as their registrations.
LIBRARIES: list[torch.library.Library] = []


def library(namespace: str, key: str) -> torch.library.Library:
    """A library of implementations for a dispatch key, or without one of definitions; kept for the life of the process."""
    made = torch.library.Library(namespace, "IMPL" if key else "FRAGMENT", key)
    LIBRARIES.append(made)
    return made
