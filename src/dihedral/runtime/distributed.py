"""Distributed training and inference: each rank holds one part of the entity table, and queries travel to the rows.

Relations are replicated, and all ranks draw the same random numbers. In a single process, each function reduces to the
plain operation.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dihedral.errors import DihedralError

TIMEOUT = timedelta(hours=1)  # for a slow rank; torchrun itself detects one that died
MAX_ROWS_SENT = 1 << 16  # in one piece of a table
MAX_MESSAGE_BYTES = 2000

_groups = itertools.count()  # numbers the process groups, so that a new one does not find addresses of an earlier one


def rank() -> int:
    """The rank of this process, or 0 if torchrun did not start it."""
    return int(os.environ.get("RANK", "0")) if world_size() > 1 else 0


def world_size() -> int:
    """The number of processes that torchrun started, or 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "MASTER_ADDR" in os.environ else 1


def restarted() -> bool:
    """Whether torchrun restarted these processes after a failure."""
    return world_size() > 1 and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def launch() -> str:
    """Identifies the torchrun call that started this process, also after a restart; empty without torchrun."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{os.getppid()}" if world_size() > 1 else ""


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Join the process group if torchrun started several processes, and yield the device of this rank."""
    if world_size() == 1 or is_joined():
        yield device
        return
    backend = "gloo"
    if device.type == "cuda":
        number = int(os.environ.get("LOCAL_RANK", "0"))
        if number >= torch.cuda.device_count():
            raise DihedralError(
                f"process {number} on this machine has no GPU: there are {torch.cuda.device_count()}; "
                "start fewer processes or add --device cpu"
            )
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
        backend = "nccl"
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        # torchrun's store on a single machine still holds the addresses of processes that it has since replaced
        store, number, world = next(dist.rendezvous("env://", timeout=TIMEOUT))  # type: ignore[attr-defined]
        name = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_groups)}"
        attempt = dist.PrefixStore(name, store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=attempt, rank=number, world_size=world, timeout=TIMEOUT)
    else:
        dist.init_process_group(backend, timeout=TIMEOUT)
    yield device
    dist.destroy_process_group()  # not after a failure: other ranks may never arrive, and the process exits anyway


@dataclass(frozen=True)
class Shard:
    """The part of a table that one rank holds: a range of positions; a single process holds the table in its own order.

    Row i has position stride · i mod num_rows, whatever the number of ranks. Frequent entities, which graphs tend to
    number first, are thereby spread over all ranks.
    """

    num_rows: int
    rank: int = 0
    world: int = 1

    @classmethod
    def mine(cls, num_rows: int) -> Shard:
        """The part of this rank."""
        if not is_joined():
            return cls(num_rows)
        shard = cls(num_rows, dist.get_rank(), dist.get_world_size())
        if (shard.world - 1) * shard.max_rows >= num_rows:
            raise DihedralError(
                f"{num_rows} entities cannot be partitioned over {shard.world} processes in parts of "
                f"{shard.max_rows}: one process would have none; start fewer processes"
            )
        return shard

    @property
    def is_single(self) -> bool:
        return self.world == 1

    @property
    def max_rows(self) -> int:
        """The number of rows of the largest part."""
        return -(-self.num_rows // self.world)

    @property
    def start(self) -> int:
        return min(self.rank * self.max_rows, self.num_rows)

    @property
    def stop(self) -> int:
        return min(self.start + self.max_rows, self.num_rows)

    @cached_property
    def stride(self) -> int:
        """Close to the golden ratio of the number of rows, and coprime to it."""
        stride = max(1, int(0.618 * self.num_rows))
        while math.gcd(stride, self.num_rows) > 1:
            stride += 1
        return stride

    def local_index(self, ids: Tensor) -> Tensor:
        """Indices of rows in this rank's part; negative or past its end for rows of other ranks."""
        return ids if self.is_single else ids * self.stride % self.num_rows - self.start

    def ids(self, device: torch.device | str = "cpu") -> Tensor:
        """The rows of this part, in order of position."""
        if self.is_single:
            return torch.arange(self.num_rows, device=device)
        return self._rows_at(self.start, self.stop, device)

    def _rows_at(self, start: int, stop: int, device: torch.device | str = "cpu") -> Tensor:
        """The rows at positions start to stop."""
        return torch.arange(start, stop, device=device) * pow(self.stride, -1, self.num_rows) % self.num_rows

    # --- collective operations -------------------------------------------------------------------

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place if the tensor is contiguous."""
        if self.is_single:
            return tensor
        total = tensor.contiguous()
        dist.all_reduce(total)
        return total

    def agreed(self, value: float, device: torch.device) -> float:
        """The value of rank zero, so that all ranks decide the same by it."""
        if self.is_single:
            return value
        return float(self.sum(torch.tensor([0.0 if self.rank else value], dtype=torch.float64, device=device)))

    def begin_sums(self, tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
        """Start to sum several tensors over ranks in one message; call the result to wait for the sums."""
        if self.is_single:
            return lambda: tensors
        total = torch.cat([tensor.flatten().float() for tensor in tensors])
        work = dist.all_reduce(total, async_op=True)

        def parts() -> list[Tensor]:
            work.wait()
            found = total.split([tensor.numel() for tensor in tensors])
            return [part.view(tensor.shape) for part, tensor in zip(found, tensors, strict=True)]

        return parts

    def logsumexp(self, norms: Tensor) -> Tensor:
        """Reduce the log-sum-exp of each rank to that over all ranks."""
        if self.is_single:
            return norms
        largest = norms.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return self.sum((norms - largest).exp()).log() + largest

    def own_rows(self, table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows [n, …] of the table, 0 if another rank holds them, and a mask [n, 1] of the rows on this rank."""
        if self.is_single:
            return table[ids], None
        index = self.local_index(ids)
        here = ((index >= 0) & (index < len(table)))[:, None]
        return table[index.clamp(0, len(table) - 1)] * here, here

    def rows(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows [n, …], whichever ranks hold them."""
        return self.sum(self.own_rows(table, ids)[0])

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The positions in ids [n] of the rows that this rank holds, and their indices in its part."""
        if self.is_single:
            return torch.arange(len(ids), device=ids.device), ids
        index = self.local_index(ids)
        here = ((index >= 0) & (index < self.stop - self.start)).nonzero()[:, 0]
        return here, index[here]

    def best(self, ids: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The top `count` over all ranks, given indices and values of the top of each part, both [n, up to count]."""
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
        """The complete table on the CPU of rank zero, None elsewhere; sent in pieces to limit device memory."""
        if self.is_single:
            return table
        result = torch.empty(self.num_rows, *table.shape[1:], dtype=table.dtype) if self.rank == 0 else None
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        for source in range(self.world):
            part = Shard(self.num_rows, source, self.world)
            for start in range(part.start, part.stop, MAX_ROWS_SENT):
                stop = min(start + MAX_ROWS_SENT, part.stop)
                piece = torch.empty(stop - start, *table.shape[1:], dtype=table.dtype, device=device)
                if source == self.rank:
                    piece.copy_(table[start - part.start : stop - part.start])
                dist.broadcast(piece, src=source)
                if result is not None:
                    result[self._rows_at(start, stop)] = piece.cpu()
        return result


def on_rank_zero(work: Callable[[], Any], device: torch.device) -> None:
    """Run `work` on rank zero while the others wait; if it fails, all ranks raise its error."""
    if not is_joined():
        work()
        return
    message = torch.zeros(MAX_MESSAGE_BYTES, dtype=torch.uint8, device=device)  # objects would travel as pickles
    if dist.get_rank() == 0:
        try:
            work()
        except (DihedralError, OSError) as error:
            text = (str(error) or repr(error)).encode()[:MAX_MESSAGE_BYTES]
            message[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    dist.broadcast(message, src=0)
    if message[0]:
        raise DihedralError(bytes(message.tolist()).rstrip(b"\0").decode(errors="replace"))


def any_rank(flag: bool, device: torch.device) -> bool:
    """Whether the flag is set on any rank; all ranks get the same answer."""
    if not is_joined():
        return flag
    reduced = torch.tensor(float(flag), device=device)
    dist.all_reduce(reduced, op=dist.ReduceOp.MAX)
    return bool(reduced)


def is_joined() -> bool:
    """Whether this process is in a process group."""
    return dist.is_available() and dist.is_initialized()
