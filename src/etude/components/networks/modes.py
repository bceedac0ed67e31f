"""Training and evaluation mode: what drops out, or takes statistics of batches, does so where it is taught and nowhere else.

Networks rest in training mode, as torch makes them, and losses see them so. Acting, evaluating and valuing happen `evaluating`.
Most networks have nothing that cares, and for these nothing is switched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from etude.components.networks.head import Head

_INDIFFERENT = ("torch.nn.modules.", "etude.components.")
"""Where classes come from whose forward pass is the same in both modes, but for those below."""


def mode_dependent(*networks: nn.Module) -> list[nn.Module]:
    """Return the modules in networks that may do one thing while learning and another while acting; in doubt one does."""
    return [module for module in _modules(networks) if _depends(module)]


def changing(*networks: nn.Module) -> list[nn.Module]:
    """Return the modules in networks whose buffers a forward pass changes, as they stand now."""
    return [module for module in _modules(networks) if _takes_statistics(module) and module.training]


def evaluating(modules: Sequence[nn.Module]) -> AbstractContextManager[None]:
    """Have modules in evaluation mode for a while. Where there are none, which is nearly always, it costs nothing."""
    return _switched(modules) if modules else _NOTHING


_NOTHING = nullcontext()


@contextmanager
def _switched(modules: Sequence[nn.Module]) -> Iterator[None]:
    switched = [module for module in modules if module.training]
    for module in switched:
        module.training = False
    try:
        yield
    finally:
        for module in switched:
            module.training = True


def _modules(networks: Sequence[nn.Module]) -> list[nn.Module]:
    """Return all modules in networks, each once, with those of another network that a head stands on."""
    found = {id(module): module for network in networks for module in network.modules()}
    trunks = [module.trunk for module in found.values() if isinstance(module, Head)]
    return [*({id(module): module for module in _modules(trunks)} | found).values()] if trunks else [*found.values()]


def _depends(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd | nn.RReLU) or _takes_statistics(module):
        return True
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout:  # a share of their own
        return True
    return not type(module).__module__.startswith(_INDIFFERENT)


def _takes_statistics(module: nn.Module) -> bool:
    # A spectral norm's estimate of the largest singular value is refined in every pass.
    return (isinstance(module, _NormBase) and module.track_running_stats) or type(module).__name__ == "_SpectralNorm"
