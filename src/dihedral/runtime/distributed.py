"""Several processes and one model: each holds a block of the entity table's rows; queries travel, rows stay.

torchrun starts the processes and torch.distributed carries what they exchange. Relations are small and every
process has them all; all draw the same random numbers, so they agree on batches and negatives without a word.
With one process every function here is the plain operation.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dihedral.errors import DihedralError

PATIENCE = timedelta(hours=1)  # for a process that is late; torchrun itself sees one that died
PIECE_ROWS = 1 << 16  # of a table that is sent
LONGEST_MESSAGE = 2000
SMALL = 1 << 15  # numbers


_groups = itertools.count()  # a group that begins anew must not find the addresses of an earlier one


def rank() -> int:
    """This process's number among those that torchrun started; 0 without it."""
    return int(os.environ.get("RANK", "0")) if world_size() > 1 else 0


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "MASTER_ADDR" in os.environ else 1


def restarted() -> bool:
    """Whether torchrun started these processes again after a failure."""
    return world_size() > 1 and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def launch() -> str:
    """A name of the call of torchrun that started this process, also of one it started again."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{os.getppid()}" if world_size() > 1 else ""


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes, if torchrun started any; gives the device of this one."""
    if world_size() == 1 or is_joined():
        yield device
        return
    backend = "gloo"
    if device.type == "cuda":
        number = int(os.environ.get("LOCAL_RANK", "0"))
        if number >= torch.cuda.device_count():
            raise DihedralError(
                f"process {number} of this machine has no GPU of its own, there are {torch.cuda.device_count()}; "
                "start fewer processes or add --device cpu"
            )
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
        backend = "nccl"
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        # on one machine, torchrun's store still holds the addresses of processes that it has since replaced
        store, number, world = next(dist.rendezvous("env://", timeout=PATIENCE))  # type: ignore[attr-defined]
        name = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_groups)}"
        attempt = dist.PrefixStore(name, store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=attempt, rank=number, world_size=world, timeout=PATIENCE)
    else:
        dist.init_process_group(backend, timeout=PATIENCE)
    yield device
    _mesh.cache_clear()
    dist.destroy_process_group()  # not after a failure: others may never come, and the process ends anyway


@dataclass(frozen=True)
class Shard:
    """Which rows of a table this process holds.

    Rows are dealt out in one fixed order that does not depend on the number of processes: row i is the (stride · i)th
    of all. Busy rows, which graphs tend to number first, so come to all processes alike; each holds a block of the
    order, as torch's own Shard(0) has it. One process holds the whole table in the order of its rows.
    """

    num_rows: int
    rank: int = 0
    world: int = 1

    @classmethod
    def mine(cls, num_rows: int) -> Shard:
        """This process's part of a table."""
        if not is_joined():
            return cls(num_rows)
        shard = cls(num_rows, dist.get_rank(), dist.get_world_size())
        if (shard.world - 1) * shard.max_rows >= num_rows:
            raise DihedralError(
                f"{num_rows} entities cannot be shared by {shard.world} processes in blocks of {shard.max_rows}: "
                "one would have none; start fewer"
            )
        return shard

    @property
    def is_single(self) -> bool:
        return self.world == 1

    @property
    def max_rows(self) -> int:
        """The rows of the largest part."""
        return -(-self.num_rows // self.world)

    @property
    def start(self) -> int:
        return min(self.rank * self.max_rows, self.num_rows)

    @property
    def stop(self) -> int:
        return min(self.start + self.max_rows, self.num_rows)

    @cached_property
    def stride(self) -> int:
        """Near the golden section of the rows, and without a factor in common with their number."""
        stride = max(1, int(0.618 * self.num_rows))
        while math.gcd(stride, self.num_rows) > 1:
            stride += 1
        return stride

    def local_index(self, ids: Tensor) -> Tensor:
        """Where rows lie in this process's part; below 0 or past its end if elsewhere."""
        return ids if self.is_single else ids * self.stride % self.num_rows - self.start

    def ids(self, device: torch.device | str = "cpu") -> Tensor:
        """The rows here, in their order."""
        if self.is_single:
            return torch.arange(self.num_rows, device=device)
        return self._in_order(self.start, self.stop, device)

    def _in_order(self, start: int, stop: int, device: torch.device | str = "cpu") -> Tensor:
        """Rows that stand from `start` to `stop` in the order in which they are dealt out."""
        return torch.arange(start, stop, device=device) * pow(self.stride, -1, self.num_rows) % self.num_rows

    # --- what processes exchange -----------------------------------------------------------------

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over processes, in place where the tensor is contiguous."""
        return self._begin_sum(tensor)()

    def _begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        if self.is_single:
            return lambda: tensor
        if tensor.device.type == "cpu" and tensor.numel() <= SMALL:  # gloo's own sum of little takes several rounds
            mine, ones = tensor.reshape(1, -1).repeat(self.world, 1), [1] * self.world
            parts = torch.empty_like(mine)
            wait = self.swap(parts, ones, mine, ones)

            def add() -> Tensor:
                wait()
                return tensor.copy_(parts.sum(0).view(tensor.shape))

            return add
        whole = tensor.contiguous()
        work = dist.all_reduce(whole, async_op=True)

        def finish() -> Tensor:
            work.wait()
            return whole

        return finish

    def begin_sums(self, tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
        """The sums of several tensors, sent together; they are under way then, and there when the result is called."""
        if self.is_single:
            return lambda: tensors
        finish = self._begin_sum(torch.cat([tensor.flatten().float() for tensor in tensors]))

        def parts() -> list[Tensor]:
            found = finish().split([tensor.numel() for tensor in tensors])
            return [part.view(tensor.shape) for part, tensor in zip(found, tensors, strict=True)]

        return parts

    def logsumexp(self, norms: Tensor) -> Tensor:
        """log Σ exp over processes of each one's log-sum-exp."""
        if self.is_single:
            return norms
        largest = norms.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return self.sum((norms - largest).exp()).log() + largest

    def own_rows(self, table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows [n, …] of the table, 0 where another process has them, and a mask [n, 1] of those that are here."""
        if self.is_single:
            return table[ids], None
        place = self.local_index(ids)
        here = ((place >= 0) & (place < len(table)))[:, None]
        return table[place.clamp(0, len(table) - 1)] * here, here

    def rows(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows [n, …] wherever they are."""
        return self.sum(self.own_rows(table, ids)[0])

    def owners(self, ids: Tensor) -> Tensor:
        """The process that holds each row."""
        return ids * self.stride % self.num_rows // self.max_rows

    def swap(self, received: Tensor, counts: list[int], sent: Tensor, sizes: list[int]) -> Callable[[], Any]:
        """Rows to and from each process: sizes[i] of `sent` go to process i, counts[i] of `received` come from it.

        It is under way then; what it gives is called to wait for the end.
        """
        return dist.all_to_all_single(received, sent, counts, sizes, async_op=True).wait

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Places in ids [n] of the rows that are here, and where in the block they lie."""
        if self.is_single:
            return torch.arange(len(ids), device=ids.device), ids
        place = self.local_index(ids)
        here = ((place >= 0) & (place < self.stop - self.start)).nonzero()[:, 0]
        return here, place[here]

    def best(self, ids: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The `count` best of what each process found best: ids in its block and values, each [n, up to count]."""
        if self.is_single:
            return ids, values
        ids = (ids + self.start) * pow(self.stride, -1, self.num_rows) % self.num_rows
        missing = count - ids.shape[1]
        ids = torch.nn.functional.pad(ids, (0, missing))
        values = torch.nn.functional.pad(values, (0, missing), value=float("-inf"))
        all_ids, all_values = ([torch.empty_like(part) for _ in range(self.world)] for part in (ids, values))
        dist.all_gather(all_ids, ids.contiguous())
        dist.all_gather(all_values, values.contiguous())
        chosen = torch.cat(all_values, dim=1).topk(count)
        return torch.cat(all_ids, dim=1).gather(1, chosen.indices), chosen.values

    def gather(self, table: Tensor) -> Tensor | None:
        """The whole table on the CPU, for the first process only; piece by piece, so that no device need hold it."""
        if self.is_single:
            return table
        result = torch.empty(self.num_rows, *table.shape[1:], dtype=table.dtype) if self.rank == 0 else None
        for source in range(self.world):
            block = Shard(self.num_rows, source, self.world)
            for start in range(block.start, block.stop, PIECE_ROWS):
                stop = min(start + PIECE_ROWS, block.stop)
                here = source == self.rank
                piece = (
                    table[start - block.start : stop - block.start].contiguous()
                    if here
                    else table.new_empty(stop - start, *table.shape[1:])
                )
                dist.broadcast(piece, src=source)
                if result is not None:
                    result[self._in_order(start, stop)] = piece.cpu()
        return result

    def stored(self, block: Tensor) -> Tensor:
        """The part as a checkpoint has it: the whole table in the order of dealing out, or this process's part of it.

        Several processes get a DTensor in the same memory, one process a copy, for which its device need have no room.
        """
        if self.is_single:
            return block.cpu()[self._in_order(0, self.num_rows)]
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor import Shard as ByRows

        mesh = _mesh(block.device.type, self.world)
        shape = torch.Size((self.num_rows, *block.shape[1:]))
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(block, mesh, [ByRows(0)], run_check=False, shape=shape, stride=stride)

    def restore(self, block: Tensor, stored: Tensor) -> None:
        """Put a checkpoint's content, read into what `stored` gave, back into the part."""
        if self.is_single:
            whole = torch.empty_like(stored)
            whole[self._in_order(0, self.num_rows)] = stored
            block.copy_(whole)


@cache
def _mesh(device: str, world: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device, (world,))


def on_rank_zero(work: Callable[[], Any], device: torch.device) -> None:
    """Do something in the first process while the others wait; they fail with it if it fails."""
    if not is_joined():
        work()
        return
    message = torch.zeros(LONGEST_MESSAGE, dtype=torch.uint8, device=device)
    if dist.get_rank() == 0:
        try:
            work()
        except (DihedralError, OSError) as error:
            text = (str(error) or repr(error)).encode()[:LONGEST_MESSAGE]
            message[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    dist.broadcast(message, src=0)
    if message[0]:
        raise DihedralError(bytes(message.tolist()).rstrip(b"\0").decode(errors="replace"))


def any_rank(here: bool, device: torch.device) -> bool:
    """Whether any process says so: all go on alike."""
    if not is_joined():
        return here
    flag = torch.tensor(float(here), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


def equal_on_all_ranks(numbers: Tensor) -> bool:
    """Whether all processes have these numbers."""
    if not is_joined():
        return True
    bounds = torch.stack([numbers, -numbers])
    dist.all_reduce(bounds, op=dist.ReduceOp.MAX)
    return bool((bounds[0] == -bounds[1]).all())


def is_joined() -> bool:
    return dist.is_available() and dist.is_initialized()
