"""Rules that the codes imply, and how well the graph bears them out.

A relation moves the vectors of its heads to where its tails are. A body r₁ · … · rₙ implies r₃ as far
as both move the same vectors the same way: over the heads of r₁, h ↦ (R₁…Rₙ)ᵀh against h ↦ R₃ᵀh, and
over the tails of rₙ the other way. The mean cosine of the two, weighed by squared length, needs only
the second moments of those vectors in each component, so every candidate is scored by one matrix
product. It is multiplied by how alike the mean heads of r₁ and r₃ are, and the mean tails of rₙ and r₃.
Facts are never counted for a score; counting them (`graph.patterns`) is how a rule is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dihedral.graph.triples import Triples
from dihedral.models import Model

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class RelationViews:
    """What scoring needs to know of each relation; of R relations, R + r is the inverse of r."""

    blocks: Matrix  # [2R, 2, 2, L]: the operators
    head_moments: Matrix  # [2R, 2, 2, L]: mean of h hᵀ over distinct heads, scaled to a whole trace of 1
    tail_moments: Matrix  # [2R, 2, 2, L]
    mean_head: Matrix  # [2R, 2L], of length 1
    mean_tail: Matrix  # [2R, 2L], of length 1

    @classmethod
    def of(cls, model: Model, blocks: Matrix, train: Triples) -> RelationViews:
        """blocks [R, 2, 2, L] of a model and the training triples that say which entities a relation joins."""
        entities = model.entities.detach().float().cpu().numpy().reshape(model.num_entities, 2, -1)  # [N, 2, L]
        count = len(blocks)
        moments = np.zeros((2, count, *blocks.shape[1:]), np.float32)
        means = np.zeros((2, count, entities[0].size), np.float32)
        order = np.argsort(train[:, 1], kind="stable")
        bounds = np.searchsorted(train[order, 1], np.arange(count + 1))
        for relation in range(count):
            facts = train[order[bounds[relation] : bounds[relation + 1]]]
            for side, column in enumerate((0, 2)):
                if len(facts):
                    rows = entities[np.unique(facts[:, column])]
                    moments[side, relation] = np.einsum("nal,nbl->abl", rows, rows, optimize=True)
                    means[side, relation] = rows.mean(axis=0).ravel()
        moments /= np.maximum(np.einsum("sraal->sr", moments), 1e-12)[:, :, None, None, None]
        means /= np.maximum(np.linalg.norm(means, axis=-1, keepdims=True), 1e-12)
        return cls(
            blocks=np.concatenate([blocks, blocks.swapaxes(1, 2)]),
            head_moments=np.concatenate([moments[0], moments[1]]),
            tail_moments=np.concatenate([moments[1], moments[0]]),
            mean_head=np.concatenate([means[0], means[1]]),
            mean_tail=np.concatenate([means[1], means[0]]),
        )

    @property
    def num_relations(self) -> int:
        return len(self.blocks) // 2

    def product(self, bodies: NDArray[np.int64]) -> Matrix:
        """The operators of bodies [n, steps]: [n, 2, 2, L]."""
        product = self.blocks[bodies[:, 0]]
        for step in range(1, bodies.shape[1]):
            product = np.einsum("nabl,nbcl->nacl", product, self.blocks[bodies[:, step]], optimize=True)
        return product

    def score(self, bodies: NDArray[np.int64], *, at_once: int = 2048) -> Matrix:
        """How far each body [n, steps] implies each relation: [n, R], between 0 and 1."""
        heads, tails = self.mean_head[: self.num_relations], self.mean_tail[: self.num_relations]
        forms = self.blocks[: self.num_relations].reshape(self.num_relations, -1).T  # [4L, R]
        scores = np.empty((len(bodies), self.num_relations), np.float32)
        for start in range(0, len(bodies), at_once):
            part = bodies[start : start + at_once]
            first, last = part[:, 0], part[:, -1]
            product = self.product(part)
            # tr(M P R₃ᵀ) over heads and tr(P N R₃ᵀ) over tails are both ⟨·, R₃⟩
            moved = np.einsum("nabl,nbcl->nacl", self.head_moments[first], product, optimize=True)
            moved += np.einsum("nabl,nbcl->nacl", product, self.tail_moments[last], optimize=True)
            same = 0.5 * moved.reshape(len(part), -1) @ forms
            alike = np.maximum(self.mean_head[first] @ heads.T, 0) * np.maximum(self.mean_tail[last] @ tails.T, 0)
            scores[start : start + at_once] = np.clip(same, 0, 1) * alike
        return scores


def group_blocks(model: Model) -> Matrix:
    """The 2x2 matrices of a DihEdral model's codes: [R, 2, 2, L]; a relation's factor is left out."""
    relations = model.relations
    blocks: torch.Tensor = relations.blocks  # type: ignore[assignment]
    codes = model.codes
    assert codes is not None
    return blocks[codes.long()].float().cpu().numpy().transpose(0, 2, 1).reshape(len(codes), 2, 2, -1)
