"""Scripts that say `cuda` run on `wave`: what `wave32 run` turns on (`WAVE32_CUDA=wave`), for PyTorch programs nobody edits.

Names are translated where Python hands them to torch: `device=` of what makes tensors, `.to`, `.cuda`, `torch.device`,
`torch.cuda.*`, autocast, files, process groups. Operators are not touched, so calls like `relu` or `conv2d` cost nothing
more. Scripts are told `cuda` in `device.type`, `str(device)` and `is_cuda`; torch's own modules are told the truth,
`wave`, since they would take CUDA's ways otherwise.
"""

from __future__ import annotations

_enabled = False


def enable() -> None:
    """Turns it on for this process; torch's autoload calls it at the end of `import torch`."""
    global _enabled
    if _enabled:
        return
    from wave32._cuda import _devices, _files, _module, _parallel, _tensors, _training

    # Tensors first: they note what `torch.device` contexts look for before any name is replaced.
    _tensors.enable()
    _devices.enable()
    _module.enable()
    _training.enable()
    _parallel.enable()
    _files.enable()
    _enabled = True
