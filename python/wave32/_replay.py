"""Compiled graphs of operators as graphs of the device: `torch.compile(mode="reduce-overhead")`.

A function that AOTAutograd made is called eagerly a few times, then captured (`torch.wave.Graph`) and replayed. Weights and
what another replay left are read where they are; other operands are copied into memory of the graph first. Results are
copied out of it, but for what only the backward pass reads: their version tells autograd when they are overwritten.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from wave32._graph import Graph, graph

# Captures of one function at most: each time an operand has moved that had not moved before.
_CAPTURES = 3


def _place(value: Any) -> Any:
    """Where a tensor lies."""
    return (value.data_ptr(), value.storage_offset()) if isinstance(value, torch.Tensor) else value


def _mutated(module: torch.fx.GraphModule) -> set[int]:
    """Operands that the graph writes to, by their place."""
    places = {node: place for place, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    written = (node.args[0] for node in module.graph.nodes if getattr(node.target, "__name__", "").split(".")[0].endswith("_"))
    return {places[node] for node in written if node in places}


class Replayed:
    """A boxed function of a list of operands, replayed as soon as that is possible, and eager where it is not."""

    def __init__(self, run: Callable[[list[Any]], Any], module: torch.fx.GraphModule, kept: int | None, warmups: int) -> None:
        """`kept`: results behind that many are read by the backward pass alone; none where all are the caller's."""
        # AOTAutograd looks for it in the instance.
        self._boxed_call = True
        self._run = run
        self._mutated = _mutated(module)
        self._kept = kept
        self._warmups = warmups
        self._before: list[Any] | None = None
        self._moving: set[int] = set()
        self._captures = 0
        self._graph: Graph | None = None
        self._static: list[Any] = []
        self._results: list[Any] = []

    def __call__(self, args: list[Any]) -> Any:
        args, given = list(args), args
        given.clear()
        if self._warmups < 0 or not all(self._is_fit(arg) for arg in args):
            return self._run(args)
        places = [_place(arg) for arg in args]
        if self._before is not None:
            self._moving |= {at for at, (was, now) in enumerate(zip(self._before, places, strict=True)) if was != now}
        self._before = places
        if self._warmups > 0:
            self._warmups -= 1
            return self._run(args)
        if self._moving & self._mutated:
            return self._give_up("an operand that it writes to is another tensor at each call", args)
        with torch.no_grad():
            if self._graph is None or any(
                at not in self._moving and _place(static) != place
                for at, (static, place) in enumerate(zip(self._static, places, strict=True))
            ):
                self._captures += 1
                if self._captures > _CAPTURES:
                    return self._give_up("its operands move about", args)
                try:
                    self._capture(args)
                except RuntimeError as error:
                    return self._give_up(str(error), args)
            else:
                for at in self._moving:
                    if isinstance(args[at], torch.Tensor):
                        self._static[at].copy_(args[at])
            return self._replay()

    @staticmethod
    def _is_fit(arg: Any) -> bool:
        return isinstance(arg, torch.Tensor) and arg.device.type == "wave" and arg.layout == torch.strided

    def _give_up(self, why: str, args: list[Any]) -> Any:
        self._warmups, self._graph, self._static, self._results = -1, None, [], []
        warnings.warn(f"wave32: a compiled graph runs without replays: {why}", stacklevel=2)
        return self._run(args)

    def _capture(self, args: list[Any]) -> None:
        self._graph, self._results = None, []
        self._static = [
            torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device=arg.device).copy_(arg)
            if at in self._moving
            else arg.detach()
            for at, arg in enumerate(args)
        ]
        made = Graph()
        with torch.autocast("wave", enabled=False), graph(made):
            results = self._run(list(self._static))
        self._graph, self._results = made, list(results)

    def _replay(self) -> list[Any]:
        assert self._graph is not None
        self._graph.replay()
        split = len(self._results) if self._kept is None else self._kept
        mine = [y.detach() for y in self._results[split:] if isinstance(y, torch.Tensor)]
        torch.autograd.graph.increment_version(mine)
        out = [y.clone() if isinstance(y, torch.Tensor) else y for y in self._results[:split]]
        return out + self._results[split:]
