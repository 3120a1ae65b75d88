"""What scripts share that measure PyTorch devices: clocks, graphs, and the settings of a fair comparison."""

import statistics
import time

import torch


def synchronize(device):
    if device != "cpu":
        getattr(torch, device).synchronize()


def timed(device, call, seconds):
    """Seconds a call, median, after warming up."""
    for _ in range(3):
        call()
    synchronize(device)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        for _ in range(2):
            call()
        synchronize(device)
        times.append((time.perf_counter() - start) / 2)
    return statistics.median(times)


def set_up_cuda():
    """As wave computes: without TF32. And cuDNN as fast as it can be."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def without_dropout(model):
    """Random masks differ between devices by nature; everything else can be compared."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        if isinstance(getattr(module, "drop_rate", None), float):  # timm's networks call the function with it
            module.drop_rate = 0.0
        if type(module).__name__ == "DropPath":
            module.drop_prob = 0.0
        if type(module).__name__ == "LabelEmbedding":  # diffusers' forgets labels in training
            module.dropout_prob = 0.0
    return model


def replayed(device, call):
    """`call` as a graph of the device."""
    module = getattr(torch, device)
    graph, capture = (module.CUDAGraph(), module.graph) if device == "cuda" else (module.Graph(), module.graph)
    with capture(graph):
        call()
    return graph.replay
