"""`torch.distributed` for tensors of the wave device, one process a card (`WAVE32_VISIBLE_DEVICES`).

`torch.distributed.init_process_group("wave")`. Tensors of the CPU may be used in the same group: they go through gloo.

Between processes of one host, all-reduce, all-gather, reduce-scatter and broadcast move tensors through memory that the
processes share (`crates/peers`): the card's copy engine and a thread copy a tensor out while the kernels launched after it
go on, a second thread copies the other ranks' tensors in, and the card adds them up, in the order of the ranks, so that every
rank has the same bits. Other operations, and groups over several hosts, copy through the host and gloo. Calls return before
the operation is done; `wait()` of what they return waits.
"""

import atexit
import collections
import queue
import threading
import time
import weakref
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from . import _native
from ._variables import variable

# Tensors are taken apart into parts of at most so many bytes, so that the memory for the other ranks' is bounded.
PART = 32 << 20

_COMBINE = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.AVG: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}


def _reduction(options):
    """The reduction that options ask for, as a key of `_COMBINE`; none for others."""
    wanted = dist.ReduceOp.SUM if options is None else options.reduceOp
    return next((known for known in _COMBINE if wanted == known), None)


def _is_wave(tensors):
    return any(_is_wave(t) if isinstance(t, (list, tuple)) else t.device.type == "wave" for t in tensors)


def _host(tensor):
    return tensor.cpu() if tensor.device.type == "wave" else tensor


def _flat(tensor):
    """The elements of a tensor in a row: a view of it where it lies so, or else a copy."""
    return tensor.view(-1) if tensor.is_contiguous() else tensor.contiguous().view(-1)


def _put_back(flat, tensor):
    """Writes what `_flat` made of a tensor into it, where that was a copy."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.copy_(flat.view(tensor.shape))


def _put_all(hosts, tensors):
    for host, tensor in zip(hosts, tensors):
        tensor.copy_(host)


def _parts(flat):
    """Parts of a flat tensor, each of at most `PART` bytes."""
    return flat.split(max(PART // flat.element_size(), 1)) if flat.numel() else ()


class _Work(c10d.Work):
    """What an operation's call returns. Torch's own work around a future swallows its error."""

    def __init__(self, future, settle=None):
        super().__init__()
        self._future, self._settle = future, settle

    def wait(self, timeout=timedelta(0)):
        """Waits until what is launched next sees the operation's result; raises what went wrong. Without a timeout that of
        the group holds."""
        if timeout > timedelta(0):
            done = threading.Event()
            self._future.add_done_callback(lambda _: done.set())
            if not done.wait(timeout.total_seconds()):
                raise dist.DistBackendError(f"the operation was not done within {timeout.total_seconds()} s")
        elif self._settle is not None:
            self._settle()
        self._future.wait()
        return True

    def is_completed(self):
        return self._future.done()

    def get_future(self):
        return self._future


class _Operation:
    """An operation of a group. Tensors go out and come in beside the queue, or `host` does it all on the CPU; then `finish`
    launches what makes the result of that."""

    def __init__(self, result, finish=None, send=(), receive=(), host=None, hold=None):
        self.future = torch.futures.Future()
        self.result, self.finish, self.send, self.receive, self.host = result, finish, send, receive, host
        # Tensors of which only regions are in the messages.
        self.hold = hold
        self.sent = threading.Event()
        self.number = 0


# Of all groups: their lines, and the threads that may still run.
_lines, _threads = weakref.WeakSet(), weakref.WeakSet()

# How long a program's end waits for operations under way.
END_SECONDS = 5.0


def _start(work, name, *args):
    thread = threading.Thread(target=work, name=f"wave32 {name}", args=args, daemon=True)
    _threads.add(thread)
    thread.start()


@atexit.register
def _end():
    """A thread that returns from libtorch to an interpreter that has ended aborts the program: all end before that."""
    for line in _lines:
        line.end()
    deadline = time.monotonic() + END_SECONDS
    for thread in list(_threads):
        thread.join(max(deadline - time.monotonic(), 0))


class _Line:
    """The operations of one group, one after the other. A thread sends what each has to send, another takes what it gets."""

    def __init__(self, seconds):
        self.peers, self.seconds = None, seconds
        self.number = 0
        # Operations whose `finish` no thread has begun, and why there are no more, under the lock.
        self.lock, self.pending, self.broken = threading.Condition(), collections.deque(), None
        # One thread at a time runs `finish`, without the lock: it may wait for what is still to be received, as a launch does
        # where the device's queue is full.
        self.is_finishing = False
        self.outward, self.inward = queue.SimpleQueue(), queue.SimpleQueue()
        _lines.add(self)
        for work, todo in (("send", self.outward), ("receive", self.inward)):
            _start(_serve, work, weakref.ref(self), work, todo)

    def __del__(self):
        self.end()

    def end(self):
        self.outward.put(None)
        self.inward.put(None)

    def add(self, operation):
        with self.lock:
            self.number += 1
            operation.number = self.number
            if self.broken is not None:
                operation.future.set_exception(self.failure())
                return operation
            self.pending.append(operation)
        if self.peers is not None:
            self.peers.reach(operation.number)
            if torch._C._current_graph_task_id() != -1:
                # What is left of a backward pass is launched before what waits for other ranks. In front of DDP's own call.
                torch.autograd.Variable._execution_engine.queue_callback(self.settle)
        self.outward.put(operation)
        self.inward.put(operation)
        return operation

    def failure(self):
        return dist.DistBackendError(f"an earlier operation of this process group failed: {self.broken}")

    def settle(self, operation=None):
        """Launches what makes an operation's result, and those before it, as soon as every rank has come to it; without one
        that of all so far. What was not sent or received yet holds that up on the device."""
        with self.lock:
            if operation is None and self.pending:
                operation = self.pending[-1]
            if operation not in self.pending or self.peers is None:
                return
            if any(earlier.host is not None for earlier in self.pending):
                return
        try:
            self.peers.all_reach(operation.number, self.seconds)
        except RuntimeError as error:
            self.break_off(operation, error)
            return
        self.finish_until(operation)

    def finish_until(self, operation):
        """Finishes what is pending up to an operation, unless another thread has begun that. It does not wait for that thread,
        which may wait for what this one has to receive."""
        with self.lock:
            self.lock.wait_for(lambda: operation not in self.pending or not self.is_finishing)
            if operation not in self.pending:
                return
            self.is_finishing = True
            todo = [self.pending.popleft() for _ in range(self.pending.index(operation) + 1)]
            self.lock.notify_all()
        last = operation
        try:
            # Once for all: what is launched before need not wait.
            if moved := [one.number for one in todo if one.send or one.receive]:
                self.peers.order(moved[-1])
            for last in todo:
                if last.finish is not None:
                    inference = any(t.is_inference() for t in last.result)
                    with torch.inference_mode(inference), torch.no_grad():
                        last.finish()
        except Exception as error:
            with self.lock:
                self.pending.extendleft(reversed(todo))
            return self.break_off(last, error)
        finally:
            with self.lock:
                self.is_finishing = False
                self.lock.notify_all()
        for one in todo:
            one.future.set_result(one.result)

    def break_off(self, operation, error):
        """Ends everything: this operation, the ones behind it, and those of the other ranks that wait for this one."""
        with self.lock:
            is_first = self.broken is None
            if is_first:
                self.broken = error
            failed, self.pending = self.pending, collections.deque()
            self.lock.notify_all()
        if is_first and self.peers is not None:
            try:
                # What is not pending was launched.
                self.peers.give_up(self.number, operation not in failed, str(error))
            except RuntimeError as further:
                error = RuntimeError(f"{error} (and: {further})")
        for other in failed:
            other.future.set_exception(dist.DistBackendError(str(error)) if other is operation else self.failure())

    def send_of(self, operation):
        try:
            if self.broken is None and self.peers is not None:
                self.peers.send(operation.number, operation.send, self.seconds)
        except RuntimeError as error:
            self.break_off(operation, error)
        operation.sent.set()

    def receive_of(self, operation):
        try:
            if self.broken is not None:
                return
            if operation.host is not None:
                with torch.no_grad():
                    operation.host()
            if self.peers is not None:
                self.peers.receive(operation.number, operation.receive, self.seconds)
        except Exception as error:
            return self.break_off(operation, error)
        # What was sent may be written only now.
        operation.sent.wait()
        self.finish_until(operation)


def _serve(line, work, todo):
    """A thread of a line, which ends with it."""
    while (operation := todo.get()) is not None:
        there = line()
        if there is None:
            return
        getattr(there, f"{work}_of")(operation)
        # Neither keeps a line alive.
        del there, operation


class WaveGroup(dist.ProcessGroup):
    """A process group whose tensors may be of the device; see the module."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        self._store = dist.PrefixStore("wave", store)
        self._seconds = timeout.total_seconds()
        self._name = ""
        self._line = _Line(self._seconds)
        self._has_joined = False

    def getBackendName(self):
        return "wave"

    def setGroupName(self, name):
        self._name = name

    def getGroupName(self):
        return self._name

    def _is_shared(self, tensors, reduction=dist.ReduceOp.SUM):
        """Whether these tensors go through shared memory. The first operation with tensors of the device opens it: every
        rank takes part in that."""
        if not _is_wave(tensors) or reduction is None:
            return False
        if not self._has_joined:
            self._line.peers = self._join()
            self._has_joined = True
        return self._line.peers is not None

    def _join(self):
        """The memory that all ranks share; none where they are not on one host, or one of them does not want it."""
        ranks = range(self.size())
        own, why = None, b""
        try:
            if variable("WAVE32_SHARED_MEMORY") == "0":
                raise RuntimeError("WAVE32_SHARED_MEMORY=0")
            own = _native.Peers()
            self._store.set(f"address{self.rank()}", own.address)
        except RuntimeError as error:
            self._store.set(f"address{self.rank()}", "")
            why = str(error).encode()
        addresses = [self._store.get(f"address{rank}").decode() for rank in ranks]
        if own is not None and all(addresses):
            try:
                own.join(self.rank(), addresses)
            except RuntimeError as error:
                why = str(error).encode()
        else:
            why = why or b"another rank has none"
        self._store.set(f"joined{self.rank()}", why)
        if any(self._store.get(f"joined{rank}") for rank in ranks):
            return None
        own.all_joined()
        return own

    def _add(self, operation):
        self._line.add(operation)
        return _Work(operation.future, partial(self._line.settle, operation))

    def _region(self, flat):
        return self._line.peers.locate(flat.data_ptr(), flat.numel() * flat.element_size())

    # Through gloo.

    def _staged(self, name, written, read, *options):
        """Runs gloo's operation on host copies of `written` and `read` (lists, or lists of lists, of tensors), then copies
        what it wrote back."""

        def staged(tensors):
            return [staged(t) if isinstance(t, (list, tuple)) else _host(t) for t in tensors]

        def back(hosts, tensors):
            for host, tensor in zip(hosts, tensors):
                if isinstance(tensor, (list, tuple)):
                    back(host, tensor)
                elif host is not tensor:
                    tensor.copy_(host)

        def run():
            hosts = staged(written)
            operands = [hosts] if read is None else [hosts, staged(read)]
            getattr(self._gloo, name)(*operands, *options).wait()
            back(hosts, written)

        return self._add(_Operation(written if all(torch.is_tensor(t) for t in written) else [], host=run))

    # Through shared memory.

    def _others_like(self, own):
        """Memory for each other rank's tensor, by rank."""
        return {rank: torch.empty_like(own) for rank in range(self.size()) if rank != self.rank()}

    def _messages(self, to):
        """Each other rank's tensor: into the one that `to` has for it."""
        return [(rank, self._region(into)) for rank, into in to.items() if rank != self.rank() and into.numel()]

    def _combine(self, reduction, own, others, out):
        """Writes what all ranks' tensors combine to, in the order of the ranks."""
        combine, every = _COMBINE[reduction], [others.get(rank, own) for rank in range(self.size())]
        total = every[0]
        for other in every[1:-1]:
            # Into memory of the others, which nobody reads again.
            total = combine(total, other, out=other if total is own else total)
        if len(every) > 1:
            combine(total, every[-1], out=out)
        elif out is not own:
            out.copy_(own)
        if reduction == dist.ReduceOp.AVG:
            torch.div(out, self.size(), out=out)

    def allreduce(self, tensors, opts=None):
        reduction = _reduction(opts)
        if not self._is_shared(tensors, reduction):
            options = opts or c10d.AllreduceOptions()
            if reduction != dist.ReduceOp.AVG:
                return self._staged("allreduce", tensors, None, options)
            # Gloo has no averages.
            options = c10d.AllreduceOptions()
            self._staged("allreduce", tensors, None, options)
            return self._add(_Operation(tensors, lambda: [tensor.div_(self.size()) for tensor in tensors]))
        work = None
        for tensor in tensors:
            flat = _flat(tensor)
            parts = _parts(flat)
            for number, part in enumerate(parts):
                others, is_last = self._others_like(part), number == len(parts) - 1

                def finish(part=part, others=others, flat=flat, tensor=tensor, is_last=is_last):
                    self._combine(reduction, part, others, part)
                    if is_last:
                        _put_back(flat, tensor)

                receive = self._messages(others)
                work = self._add(_Operation(tensors, finish, [self._region(part)], receive))
        return work or self._add(_Operation(tensors))

    def allreduce_coalesced(self, tensors, opts=None):
        options = c10d.AllreduceOptions()
        options.reduceOp = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        for tensor in tensors:
            self.allreduce([tensor], options)
        return self._add(_Operation(tensors))

    def broadcast(self, tensors, opts=None):
        opts = opts or c10d.BroadcastOptions()
        if not self._is_shared(tensors):
            return self._staged("broadcast", tensors, None, opts)
        work = None
        for tensor in tensors:
            flat = _flat(tensor)
            if not flat.numel():
                continue
            if opts.rootRank == self.rank():
                work = self._add(_Operation(tensors, send=[self._region(flat)], hold=flat))
                continue

            finish = partial(_put_back, flat, tensor)
            work = self._add(_Operation(tensors, finish, (), [(opts.rootRank, self._region(flat))]))
        return work or self._add(_Operation(tensors))

    def allgather(self, outputs, inputs, opts=None):
        if not self._is_shared(inputs):
            return self._staged("allgather", outputs, inputs, opts or c10d.AllgatherOptions())
        work = None
        for places, tensor in zip(outputs, inputs):
            # Of one rank it may be empty.
            flat = _flat(tensor)
            flats = {rank: _flat(place) for rank, place in enumerate(places)}

            def finish(places=places, flats=flats, tensor=tensor):
                for rank, place in enumerate(places):
                    if rank == self.rank():
                        place.copy_(tensor)
                    else:
                        _put_back(flats[rank], place)

            send = [self._region(flat)] if flat.numel() else []
            work = self._add(_Operation([*places], finish, send, self._messages(flats), hold=flat))
        return work or self._add(_Operation([]))

    def _allgather_base(self, output, input, opts=None):
        parts = list(output.view(self.size(), *input.shape).unbind(0))
        return self.allgather([parts], [input], opts)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, input in zip(outputs, inputs):
            self._allgather_base(output, input)
        return self._add(_Operation(outputs))

    def reduce_scatter(self, outputs, inputs, opts=None):
        reduction, work = _reduction(opts), None
        for output, parts in zip(outputs, inputs):
            if not self._is_shared([output, *parts], reduction):
                work = self._reduce_scatter_by_reduce(output, parts, opts)
                continue
            # Of one rank they may be empty.
            flats = [_flat(part) for part in parts]
            own = flats[self.rank()]
            others = self._others_like(own)
            # Each rank sends what is for the others, and takes of each what is for it.
            send = [self._region(flat) for rank, flat in enumerate(flats) if rank != self.rank() and flat.numel()]
            receive = []
            for rank in others:
                for to in (r for r in range(self.size()) if r != rank):
                    bytes = flats[to].numel() * flats[to].element_size()
                    receive.append((rank, self._region(others[rank]) if to == self.rank() and bytes else bytes))

            def finish(output=output, own=own, others=others, flats=flats):
                self._combine(reduction, own, others, total := torch.empty_like(own))
                output.copy_(total.view(output.shape))

            work = self._add(_Operation([output], finish, send, receive))
        return work or self._add(_Operation(outputs))

    def _reduce_scatter_by_reduce(self, output, parts, opts):
        """What gloo has no operation for: each rank's part is reduced there."""
        reduction = _reduction(opts)
        # A reduction changes its tensor.
        wholes = [part.clone() for part in parts]
        for rank, whole in enumerate(wholes):
            options = c10d.ReduceOptions()
            options.rootRank = rank
            if reduction not in (None, dist.ReduceOp.AVG):
                options.reduceOp = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
            self._staged("reduce", [whole], None, options)

        def finish():
            output.copy_(wholes[self.rank()].view(output.shape))
            if reduction == dist.ReduceOp.AVG:
                output.div_(self.size())

        return self._add(_Operation([output], finish))

    def _reduce_scatter_base(self, output, input, opts=None):
        return self.reduce_scatter([output], [list(input.view(self.size(), *output.shape).unbind(0))], opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, input in zip(outputs, inputs):
            self._reduce_scatter_base(output, input, opts)
        return self._add(_Operation(outputs))

    # Rarer operations, through gloo always.

    def reduce(self, tensors, opts=None):
        return self._staged("reduce", tensors, None, opts or c10d.ReduceOptions())

    def gather(self, outputs, inputs, opts=None):
        return self._staged("gather", outputs, inputs, opts or c10d.GatherOptions())

    def scatter(self, outputs, inputs, opts=None):
        return self._staged("scatter", outputs, inputs, opts or c10d.ScatterOptions())

    def alltoall(self, outputs, inputs, opts=None):
        return self._staged("alltoall", outputs, inputs, opts or c10d.AllToAllOptions())

    def alltoall_base(self, output, input, output_sizes, input_sizes, opts=None):
        host = torch.empty_like(output, device="cpu")

        def run():
            options = opts or c10d.AllToAllOptions()
            self._gloo.alltoall_base(host, _host(input), output_sizes, input_sizes, options).wait()
            output.copy_(host)

        return self._add(_Operation([output], host=run))

    def _aside(self, tensors, run):
        """Runs what has an order of its own (a sender's and a receiver's tag), not that of the group's operations."""
        future = torch.futures.Future()

        def work():
            try:
                with torch.no_grad():
                    run()
            except Exception as error:
                future.set_exception(dist.DistBackendError(str(error)))
            else:
                future.set_result(tensors)

        _start(work, "send or receive")
        return _Work(future)

    def send(self, tensors, destination, tag=0):
        # Started here: sends of one tag arrive in the order of the calls.
        sent = self._gloo.send([_host(t).contiguous() for t in tensors], destination, tag)
        return self._aside(tensors, sent.wait)

    def recv(self, tensors, source, tag=0):
        hosts = [torch.empty(t.shape, dtype=t.dtype) for t in tensors]
        received = self._gloo.recv(hosts, source, tag)

        def run():
            received.wait()
            _put_all(hosts, tensors)

        return self._aside(tensors, run)

    def recv_anysource(self, tensors, tag=0):
        hosts = [torch.empty(t.shape, dtype=t.dtype) for t in tensors]
        received = self._gloo.recv_anysource(hosts, tag)
        received.wait()
        _put_all(hosts, tensors)
        # It says from whom.
        return received

    # The names of torch 2.15.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def barrier(self, opts=None):
        return self._add(_Operation([], host=lambda: self._gloo.barrier(opts or c10d.BarrierOptions()).wait()))


def register():
    """Makes the backend known."""
    dist.Backend.register_backend("wave", WaveGroup, devices=["wave", "cpu"])
