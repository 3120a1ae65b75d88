"""`torch.distributed` for tensors of the wave device: gloo, with the data staged through the host.

`torch.distributed.init_process_group("wave")`, one process a card (`WAVE32_VISIBLE_DEVICES`). Tensors of the CPU may be
used in the same group. Every operation is done when its call returns.
"""

import torch
import torch.distributed as dist


def _done(result):
    from torch._C._distributed_c10d import _create_work_from_future

    future = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _host(tensor):
    return tensor.cpu() if tensor.device.type == "wave" else tensor


class StagedGloo(dist.ProcessGroup):
    """A gloo group that takes tensors of the device as well."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self):
        return "wave"

    def _run(self, name, written, read, *options):
        """Runs gloo's operation on host copies of `written` and `read` (lists, or lists of lists, of tensors), then
        copies what it wrote back."""

        def staged(tensors):
            return [staged(t) if isinstance(t, (list, tuple)) else _host(t) for t in tensors]

        def back(hosts, tensors):
            for host, tensor in zip(hosts, tensors):
                if isinstance(tensor, (list, tuple)):
                    back(host, tensor)
                elif host is not tensor:
                    tensor.copy_(host)

        hosts = staged(written)
        operands = [hosts] if read is None else [hosts, staged(read)]
        getattr(self._gloo, name)(*operands, *options).wait()
        back(hosts, written)
        return _done(written)

    def allreduce(self, tensors, opts=None):
        return self._run("allreduce", tensors, None, opts or dist.AllreduceOptions())

    def allreduce_coalesced(self, tensors, opts=None):
        for tensor in tensors:
            options = dist.AllreduceOptions()
            options.reduceOp = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
            self._run("allreduce", [tensor], None, options)
        return _done(tensors)

    def broadcast(self, tensors, opts=None):
        return self._run("broadcast", tensors, None, opts or dist.BroadcastOptions())

    def reduce(self, tensors, opts=None):
        return self._run("reduce", tensors, None, opts or dist.ReduceOptions())

    def allgather(self, outputs, inputs, opts=None):
        return self._run("allgather", outputs, inputs, opts or dist.AllgatherOptions())

    def _allgather_base(self, output, input, opts=None):
        parts = list(output.view(self.size(), *input.shape).unbind(0))
        self.allgather([parts], [input])
        return _done([output])

    def gather(self, outputs, inputs, opts=None):
        return self._run("gather", outputs, inputs, opts or dist.GatherOptions())

    def scatter(self, outputs, inputs, opts=None):
        return self._run("scatter", outputs, inputs, opts or dist.ScatterOptions())

    def send(self, tensors, destination, tag=0):
        self._gloo.send([_host(t).contiguous() for t in tensors], destination, tag).wait()
        return _done(tensors)

    def recv(self, tensors, source, tag=0):
        return self._run("recv", tensors, None, source, tag)

    def barrier(self, opts=None):
        self._gloo.barrier(opts or dist.BarrierOptions()).wait()
        return _done([])


def register():
    """Makes the backend known."""
    dist.Backend.register_backend("wave", StagedGloo, devices=["wave", "cpu"])
