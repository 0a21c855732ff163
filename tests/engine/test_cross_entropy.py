"""Cross-entropy over all entities: tiles of any size give the loss and gradients of `reference.cross_entropy`."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from dihedral.engine.cross_entropy import tiled_cross_entropy
from tests.oracle import exact_cross_entropy


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def large() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, candidates and targets whose logits need several tiles of 1 MB."""
    queries, candidates = torch.randn(301, 16, generator=seeded(0)), torch.randn(6000, 16, generator=seeded(1))
    return queries, candidates, torch.randint(6000, (301,), generator=seeded(2))


@pytest.mark.parametrize("rows", [1, 10, 63, 64, 301], ids=lambda rows: f"{rows} rows")
@pytest.mark.parametrize("entities", [1, 50, 4500, 6000], ids=lambda entities: f"{entities} entities")
@pytest.mark.parametrize("tile_mb", [1, 256], ids=lambda size: f"{size} MB")
def test_tiles_of_any_size_give_the_loss_and_gradients_of_the_reference(large, rows, entities, tile_mb):
    queries, candidates, targets = large[0][:rows], large[1][:entities], large[2][:rows] % entities
    found = tiled_cross_entropy(queries, candidates, targets, tile_mb=tile_mb)
    for ours, theirs in zip(found, exact_cross_entropy(queries, candidates, targets), strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tile_mb", [1, 256])
def test_gradients_are_scaled_and_the_loss_is_not(large, tile_mb):
    loss, *gradients = exact_cross_entropy(*large)
    found = tiled_cross_entropy(*large, scale=0.25, tile_mb=tile_mb)
    for ours, theirs in zip(found, (loss, *(0.25 * gradient for gradient in gradients)), strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tile_mb", [1, 256])
def test_large_logits_do_not_overflow(large, tile_mb):
    queries, candidates, targets = large
    found = tiled_cross_entropy(queries * 100, candidates, targets, tile_mb=tile_mb)
    expected = exact_cross_entropy(queries * 100, candidates, targets)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours.double(), theirs, atol=1e-2, rtol=1e-3)


# --- several targets of one query -------------------------------------------------------------------


@pytest.mark.parametrize("tile_mb", [1, 256], ids=lambda size: f"{size} MB")
@pytest.mark.parametrize("part", [slice(0, 6000), slice(1000, 3000)], ids=["all candidates", "a part"])
def test_several_targets_of_a_query_are_as_many_queries_with_one_each(large, tile_mb, part):
    queries, candidates, _ = large
    counts = torch.randint(1, 8, (len(queries),), generator=seeded(3))
    owners = torch.arange(len(queries)).repeat_interleave(counts)
    targets = torch.randint(6000, (len(owners),), generator=seeded(4)) - part.start
    norm = torch.logsumexp(queries @ candidates.T, 1)
    whole = part == slice(0, 6000)

    def ask(rows: Tensor, norms: Tensor, **options: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        combine = None if whole else lambda own: norms
        return tiled_cross_entropy(
            rows, candidates[part], targets, scale=0.25, tile_mb=tile_mb, combine=combine, **options
        )

    loss, query_gradient, candidate_gradient = ask(queries, norm, owners=owners)
    expected = ask(queries[owners], norm[owners])
    torch.testing.assert_close(loss, expected[0])
    torch.testing.assert_close(query_gradient, torch.zeros_like(queries).index_add(0, owners, expected[1]))
    torch.testing.assert_close(candidate_gradient, expected[2], atol=1e-5, rtol=1e-5)


# --- candidates in parts, as several ranks hold them ------------------------------------------------


@pytest.mark.parametrize("tile_mb", [1, 256], ids=lambda size: f"{size} MB")
@pytest.mark.parametrize("bounds", [[0, 2000, 4000, 6000], [0, 1, 5999, 6000]], ids=["equal", "unequal"])
def test_parts_of_the_candidates_add_up_to_the_total(large, bounds, tile_mb):
    queries, candidates, targets = large
    norm = torch.logsumexp(queries @ candidates.T, 1)
    loss, query_gradient, candidate_gradients, calls = torch.zeros(()), torch.zeros_like(queries), [], []
    for start, end in pairwise(bounds):

        def combine(own: Tensor, part: Tensor = candidates[start:end]) -> Tensor:
            torch.testing.assert_close(own, torch.logsumexp(queries @ part.T, 1))
            calls.append(len(own))
            return norm

        found = tiled_cross_entropy(
            queries, candidates[start:end], targets - start, scale=0.25, tile_mb=tile_mb, combine=combine
        )
        loss, query_gradient = loss + found[0], query_gradient + found[1]
        candidate_gradients.append(found[2])
    assert calls == [len(queries)] * 3  # once per part: it is a collective operation
    expected = exact_cross_entropy(queries, candidates, targets)
    total = loss, query_gradient * 4, torch.cat(candidate_gradients) * 4
    for ours, theirs in zip(total, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)
