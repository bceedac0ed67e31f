"""A device that is not there: a tensor subclass that behaves as tensors on a real accelerator do.

Reading one from the host (`.item()`, `.numpy()`, `.tolist()`, `bool()`) raises, and so does mixing one with a plain CPU tensor
(a 0-dim CPU tensor may take part in arithmetic, as on CUDA). `.to("cpu")` is the one way out, and it is counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("privateuseone:0")
_FACTORIES = {torch.zeros, torch.ones, torch.empty, torch.full, torch.tensor, torch.as_tensor, torch.arange, torch.rand,
              torch.randn, torch.randint, torch.randperm}  # fmt: skip
_READS = {torch.Tensor.item, torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__bool__, torch.Tensor.__int__,
          torch.Tensor.__float__, torch.Tensor.__index__, torch.Tensor.__array__, torch.Tensor.nonzero}  # fmt: skip
_CROSSES = {torch.Tensor.copy_, torch.Tensor.to, torch.Tensor.type_as}


class DeviceTensor(torch.Tensor):
    """A tensor on the device."""

    device = DEVICE  # type: ignore[assignment] # says where it is


class DeviceGenerator(torch.Generator):
    """A generator on the device."""

    device = DEVICE  # type: ignore[assignment] # says where it belongs


class HostReadError(AssertionError):
    """The host asked the device for a number."""


class _Device(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.transfers = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        on_device = [t for t in tensors if isinstance(t, DeviceTensor)]
        if func in _FACTORIES:
            wanted = kwargs.get("device")
            if wanted is not None and torch.device(wanted) == DEVICE:
                kwargs["device"] = "cpu"
                made = func(*_plain(args), **_plain(kwargs))
                return made.as_subclass(DeviceTensor)
            assert not on_device or func is torch.as_tensor, f"{func} on the host from a tensor on the device"
            return func(*args, **kwargs)
        if func is torch.Tensor.to:
            return self._to(args, kwargs)
        if not on_device:
            return func(*args, **kwargs)
        if func in _READS:
            raise HostReadError(f"{func} on a tensor of the device")
        if func is torch._has_compatible_shallow_copy_type:
            return False  # a module moved to the device gets new parameters
        if func is torch.Tensor.cpu:
            return self._to((args[0], "cpu"), {})
        joins = func in (torch.stack, torch.cat)  # these take no 0-dim strangers either
        strangers = [t for t in tensors if not isinstance(t, DeviceTensor) and (t.ndim > 0 or joins)]
        assert not strangers or func in _CROSSES, f"{func} mixes the device with the host"
        result = func(*args, **kwargs)
        if getattr(func, "__self__", None) is torch.Tensor.grad and isinstance(result, torch.Tensor):
            return result.as_subclass(DeviceTensor)
        return result

    def _to(self, args: Any, kwargs: Any) -> Any:
        target = kwargs.get("device", args[1] if len(args) > 1 else None)
        source = args[0]
        if isinstance(target, torch.dtype) or target is None:
            return torch.Tensor.to(*args, **kwargs)
        if isinstance(target, torch.Tensor):
            target = DEVICE if isinstance(target, DeviceTensor) else "cpu"
        dtype = kwargs.get("dtype", next((a for a in args[2:] if isinstance(a, torch.dtype)), None))
        if isinstance(source, DeviceTensor) != (torch.device(target) == DEVICE):
            # torch's own gradient clipping groups tensors by the storage's device, which here is the host.
            self.transfers += "/torch/" not in sys._getframe(2).f_code.co_filename
            source = source.as_subclass(DeviceTensor if torch.device(target) == DEVICE else torch.Tensor).clone()
        return source if dtype is None else source.to(dtype)


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    return tree


@contextmanager
def pretend_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Device]:
    """Within, `device=DEVICE` works everywhere a real device would."""
    real = torch.Generator

    def make(device: Any = "cpu") -> torch.Generator:
        return DeviceGenerator() if torch.device(device) == DEVICE else real(device)

    monkeypatch.setattr(torch, "Generator", make)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with _Device() as device:
            yield device
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
