"""Cross-entropy over all entities with its gradients, tile by tile of queries, without storing all logits.

If the candidates are one rank's part of a partitioned table, `combine` reduces the log-sum-exp over all ranks. It is
called exactly once, whatever the tiles, because it is a collective operation; the logits are then computed twice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dihedral.engine import cuda
from dihedral.engine.cuda import Combine, local_targets

TILE_MB = 256  # size of the logits in memory at a time
MIN_ROWS = 64  # per tile of queries; the products are slow with fewer

Result = tuple[Tensor, Tensor, Tensor]
"""The summed loss, and the gradients of queries [B, d] and candidates [N, d], multiplied by `scale`."""


@torch.no_grad()
def tiled_cross_entropy(
    queries: Tensor,
    candidates: Tensor,
    targets: Tensor,
    *,
    scale: float = 1.0,
    precision: str = "float32",
    tile_mb: int | None = None,
    combine: Combine | None = None,
    owners: Tensor | None = None,
) -> Result:
    """Summed cross-entropy of queries [B, d] and targets [B] among candidates [N, d]; `precision` is that of CUDA.

    owners: ascending, the query of each target, if queries have several targets [P]; half precision is then tf32.

    If `combine` is given, the candidates are one part of a table, and a target outside 0..N-1 is in another part. Each
    part returns the loss of its own targets and its share of the query gradient; summing over parts gives the total.
    """
    tile_bytes = (tile_mb or TILE_MB) * 2**20
    if queries.is_cuda and precision == "half" and owners is None and (not combine or cuda.fits_registers(queries)):
        return cuda.half_cross_entropy(queries, candidates, targets, scale, tile_bytes, combine)
    if queries.is_cuda:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
        try:
            return _tiled(queries, candidates, targets, scale, tile_bytes, combine, owners)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    return _tiled(queries, candidates, targets, scale, tile_bytes, combine, owners)


def _tiled(
    queries: Tensor, candidates: Tensor, targets: Tensor, scale: float, tile_bytes: int, combine: Combine | None,
    owners: Tensor | None,
) -> Result:  # fmt: skip
    rows = max(MIN_ROWS, tile_bytes // (4 * len(candidates)))
    norms = None
    if combine:
        norms = combine(torch.cat([(part @ candidates.T).logsumexp(1) for part in queries.split(rows)]))
    inside, targets = local_targets(targets, candidates)
    loss = queries.new_zeros(())
    query_gradient = torch.empty_like(queries)
    candidate_gradient = torch.zeros_like(candidates)
    scaled = queries * scale
    counts = None if owners is None else torch.bincount(owners, minlength=len(queries)).to(queries.dtype)[:, None]
    owners = torch.arange(len(queries), device=queries.device) if owners is None else owners
    for start in range(0, len(queries), rows):
        part = slice(start, start + rows)
        logits = queries[part] @ candidates.T
        norm = logits.logsumexp(1, keepdim=True) if norms is None else norms[part, None]
        here = part if counts is None else slice(*(int((owners < row).sum()) for row in (start, start + rows)))
        row, is_inside = owners[here] - start, inside[here]
        places = row * len(candidates) + targets[here]
        loss += ((norm[row, 0] - logits.view(-1)[places]) * is_inside).sum()
        residual = logits.sub_(norm).exp_()  # the softmax; the last of the next lines subtracts the targets
        if counts is not None:
            residual.mul_(counts[part])
        residual.view(-1).scatter_add_(0, places, -is_inside)
        torch.mm(residual, candidates, out=query_gradient[part])
        candidate_gradient.addmm_(residual.T, scaled[part])
    return loss, query_gradient.mul_(scale), candidate_gradient
