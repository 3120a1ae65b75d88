"""Loads a test file of PyTorch for a device that torch has no name for."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import pathlib
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import rules

# `DEVICE` stands for the device's name in ids: one id names the test on the device and on the CPU.
PLACE = "DEVICE"


def canonical(file: str, class_name: str, test: str, device: str) -> str:
    """The id of a test, the same on every device."""
    generic = re.sub(rf"(PRIVATEUSE1|{re.escape(device.upper())})$", "", class_name)
    at = list(re.finditer(rf"_{re.escape(device)}(?=_|$)", test))
    if at:
        test = f"{test[: at[-1].start()]}_{PLACE}{test[at[-1].end():]}"
    return f"{file}::{generic}::{test}"


def open_device(device: str) -> None:
    """Makes torch know `device`, and torch's own test classes be made for it alone. Opens nothing."""
    os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = device
    if device == "cpu":
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch

    torch.set_num_threads(1)
    if device == "wave":
        from wave32 import _device

        # Counting devices loads the driver, and runners are forked from here: they count anew.
        _device._count = 1
    if device != "cpu" and getattr(torch, device, None) is None:
        raise SystemExit(f"torch knows no device {device!r}; only wave's plug-in is imported here")
    _patch_torch(device)


def _patch_torch(device: str) -> None:
    from torch.testing._internal import common_device_type, common_utils

    _open_cuda_only(common_device_type, device)
    _open_classes(common_device_type, device)
    _size_memory(common_device_type)
    if device not in common_utils.NATIVE_DEVICES:
        # What `onlyNativeDeviceTypes` asks; newer torch puts the device there itself.
        known = (*common_utils.NATIVE_DEVICES, device)
        common_utils.NATIVE_DEVICES = common_device_type.NATIVE_DEVICES = known
    if device != "cpu":
        _capabilities(common_device_type)
        _fork_own(device)
        _freeze_own(device)


def about_cuda(test: Callable[..., Any]) -> bool:
    """True where the body of a test speaks of CUDA, so that it is about nothing else."""
    try:
        lines = inspect.getsource(inspect.unwrap(test)).splitlines()
    except (OSError, TypeError):
        return True
    start = next((i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    # The name of a test tells of its origin, not of what it needs.
    body = "\n".join(lines[start + 1:]).lower()
    return any(word in body for word in rules.CUDA_ONLY_WORDS)


def _open_cuda_only(common: Any, device: str) -> None:
    closed = common.onlyOn.__call__

    def call(self: Any, test: Callable[..., Any]) -> Any:
        named = [self.device_type] if isinstance(self.device_type, str) else list(self.device_type)
        if "cpu" in named or "cuda" not in named or device in named or about_cuda(test):
            return closed(self, test)
        return test

    common.onlyOn.__call__ = call


def _open_classes(common: Any, device: str) -> None:
    """Classes for the CPU and CUDA are for this device too; those for one of the two are not."""
    original = common.instantiate_device_type_tests

    def instantiate(
        kind: type, scope: dict[str, Any], except_for: Any = None, only_for: Any = None, **options: Any
    ) -> None:
        if only_for is not None:
            only_for = (only_for,) if isinstance(only_for, str) else tuple(only_for)
            if {"cpu", "cuda"} <= set(only_for):
                only_for += (device,)
        original(kind, scope, except_for, only_for, **options)

    common.instantiate_device_type_tests = instantiate


def _size_memory(common: Any) -> None:
    """`largeTensorTest` asks for sizes, mostly of CUDA; of a device that it does not know it skips. Nothing here has 4 GB to
    spare: beside other tests, one that fills the GPU fails them all."""
    original = common._has_sufficient_memory

    def enough(device: Any, size: int) -> bool:
        import torch

        if torch.device(device).type == "cpu":
            return original(device, size)
        limit = int(float(os.environ.get("UPSTREAM_MEMORY_GIB", "4")) * 2**30)
        return size <= limit

    common._has_sufficient_memory = enough


def _capabilities(common: Any) -> None:
    """A newer torch asks what a device can; an unasked one fails. The answers are the CPU's."""
    base = getattr(common, "PrivateUse1TestBase", None)
    if base is not None and hasattr(common.CPUTestBase, "_capabilities"):
        base._capabilities = classmethod(lambda cls: common.CPUTestBase._capabilities())
    if base is not None and not hasattr(base, "_should_stop_test_suite"):
        base._should_stop_test_suite = lambda self: False


def _fork_own(device: str) -> None:
    """`fork_rng` keeps CUDA's state unless told of another device: here, the state of the device under test."""
    import torch

    original = torch.random.fork_rng

    @functools.wraps(original)
    def fork_rng(*args: Any, **kwargs: Any) -> Any:
        # The fifth by place is the type.
        return original(*args, **kwargs) if len(args) > 4 else original(*args, **{"device_type": device, **kwargs})

    torch.random.fork_rng = fork_rng


def _freeze_own(device: str) -> None:
    """`freeze_rng_state` of the helpers, for tests that draw the same numbers twice, keeps the CPU's state and CUDA's alone."""
    import torch
    from torch.testing import _utils

    original, own = _utils.freeze_rng_state, getattr(torch, device)

    @contextlib.contextmanager
    def freeze() -> Iterator[None]:
        state = own.get_rng_state()
        try:
            with original():
                yield
        finally:
            own.set_rng_state(state)

    _utils.freeze_rng_state = freeze


class StandIn:
    """A name that the installed torch's helpers lack: false, a decorator that changes nothing, and nothing to add to a list."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __add__(self, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and (inspect.isfunction(args[0]) or inspect.isclass(args[0])):
            return args[0]
        return self

    def __repr__(self) -> str:
        return f"<{self.name}, which this torch lacks>"


def _stand_in_for(module: types.ModuleType, missing: set[str]) -> None:
    def attribute(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        missing.add(f"{module.__name__}.{name}")
        return StandIn(name)

    module.__getattr__ = attribute  # type: ignore[method-assign]


class Loaded(types.SimpleNamespace):
    """`tests`: id to (class, method); `missing`: names that stand-ins were made for."""


def adapted(source: str) -> str:
    """The file's text after the rules. A test's own text is looked up by its line, so that none may move."""
    lines = source.count("\n")
    for pattern, replacement, _ in rules.TEXT:
        source = re.sub(pattern, replacement, source, flags=re.MULTILINE)
        if source.count("\n") != lines:
            raise ValueError(f"the rule {pattern!r} moves lines")
    return source


def load(checkout: pathlib.Path, file: rules.File, device: str) -> Loaded:
    """The file's tests for `device`."""
    root = checkout / "test"
    path = root / file.path
    sys.path[:0] = [str(path.parent), str(root)]
    source = adapted(path.read_text())
    missing: set[str] = set()
    for name in sorted(set(re.findall(r"torch\.testing\._internal(?:\.\w+)+", source))):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        _stand_in_for(module, missing)
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return Loaded(tests=dict(_tests(module, file, device)), missing=sorted(missing))


def _tests(module: types.ModuleType, file: rules.File, device: str) -> Iterator[tuple[str, tuple[type, str]]]:
    from torch.testing._internal.common_device_type import DeviceTypeTestBase

    for class_name, kind in sorted(vars(module).items()):
        if not (isinstance(kind, type) and issubclass(kind, unittest.TestCase)):
            continue
        if not issubclass(kind, DeviceTypeTestBase) and class_name not in file.on_default_device:
            continue
        for name in unittest.defaultTestLoader.getTestCaseNames(kind):
            yield canonical(file.path, class_name, name, device), (kind, name)
