"""The paper in one file: DihEdral (Xu and Li, 2019) in plain torch, to be read beside it from top to bottom.

Nothing here is fast. The fast paths of the library are tested against these functions, which autograd differentiates in
double precision. Comments say what we do where the paper leaves a choice open.

Shapes: B triples in a batch, N entities, R relations, L components. An entity is a row [2L]: the first coordinates of
its components, then the second ones. A relation is one matrix per component: [L, 2, 2].
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def dihedral_group(K: int) -> Tensor:
    """Eq. 1: the matrices of D_K, the rotations O⁽ᵐ⁾ and then the reflections F⁽ᵐ⁾, m = 0 … K-1: [2K, 2, 2]."""
    angle = 2 * math.pi * torch.arange(K, dtype=torch.float64) / K
    cos, sin = angle.cos(), angle.sin()
    rotations = torch.stack([cos, -sin, sin, cos], dim=-1)
    reflections = torch.stack([cos, sin, sin, -cos], dim=-1)
    return torch.cat([rotations, reflections]).view(2 * K, 2, 2)


# --- relations: one element of the group per component -----------------------------------------------


def gumbel_relations(logits: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """D_K-Gumbel, R⁽ˡ⁾ = Σ_k c_k D_k: logits s [R, L, 2K] and noise q, drawn once per relation and batch."""
    choice = torch.softmax((logits + noise) / temperature, dim=-1)  # Eq. 3
    return torch.einsum("rlk,kij->rlij", choice, dihedral_group(logits.shape[-1] // 2))


def sign(real: Tensor) -> Tensor:
    """Straight-through: the sign in the forward pass, where sign(0) = 1, and the identity in the backward pass."""
    return torch.where(real >= 0, 1.0, -1.0) + (real - real.detach())


def sign_relations(latents: Tensor, K: int) -> Tensor:
    """D_K-STE for K = 4 and 6, from real latents [R, L, 3] of α, x, y, or [R, L, 4] with z for K = 6."""
    alpha, x, y, *z = sign(latents).unbind(-1)
    if K == 4:
        cos, sin = (x + y) / 2, (x - y) / 2
    else:
        cos, sin = y * (3 - x) / 4, z[0] * (x + 1) * math.sqrt(3) / 4
    return torch.stack([cos, -alpha * sin, sin, alpha * cos], dim=-1).unflatten(-1, (2, 2))


def component_scores(h: Tensor, R: Tensor, t: Tensor) -> Tensor:
    """h⁽ˡ⁾ᵀ R⁽ˡ⁾ t⁽ˡ⁾ of each component: [..., L] from vectors [..., 2L] and matrices [..., L, 2, 2]."""
    return torch.einsum("...il,...lij,...jl->...l", h.unflatten(-1, (2, -1)), R, t.unflatten(-1, (2, -1)))


def score(h: Tensor, R: Tensor, t: Tensor) -> Tensor:
    """φ(h, r, t) = hᵀ R t."""
    return component_scores(h, R, t).sum(-1)


def score_triples(entities: Tensor, relations: Tensor, triples: Tensor) -> Tensor:
    """φ of triples [..., 3] of ids, from entities [N, 2L] and relations [R, L, 2, 2]."""
    h, r, t = triples.unbind(-1)
    return score(entities[h], relations[r], entities[t])


# --- losses ------------------------------------------------------------------------------------------


def logistic_loss(positive: Tensor, negative: Tensor) -> Tensor:
    """The sum of Eq. 2, Σ -log σ(y φ), from scores of positives [B] and negatives, divided by B."""
    return (-F.logsigmoid(positive).sum() - F.logsigmoid(-negative).sum()) / len(positive)


def l2(h: Tensor, t: Tensor) -> Tensor:
    """‖Θ_E‖² of Eq. 2, read as ½ (‖h‖² + ‖t‖²) for each positive, averaged over the batch."""
    return (h.square().sum(-1) + t.square().sum(-1)).mean() / 2


def equation_2(entities: Tensor, relations: Tensor, positives: Tensor, negatives: Tensor, weight: float) -> Tensor:
    """Eq. 2 for triples T⁺ [B, 3] and T⁻ [..., 3], with the weight λ."""
    scores = (score_triples(entities, relations, triples) for triples in (positives, negatives))
    return logistic_loss(*scores) + weight * l2(entities[positives[:, 0]], entities[positives[:, 2]])


def component_loss(positive: Tensor, negative: Tensor) -> Tensor:
    """The extra loss of the case studies, from component scores [B, L] and [B, n, L]: a mean over n negatives."""
    return -F.logsigmoid(positive[:, None] - negative).sum(-1).mean()


def cross_entropy(scores: Tensor, answers: Tensor) -> Tensor:
    """The mean of -log softmax of the answers [B], from scores [B, N]."""
    return -scores.log_softmax(dim=1)[torch.arange(len(answers)), answers].mean()


def softmax_loss(entities: Tensor, relations: Tensor, triples: Tensor) -> Tensor:
    """Full softmax on both sides: tails among all entities plus heads among all entities. It is not in the paper."""
    h, r, t = triples.T
    tails = score(entities[h][:, None], relations[r][:, None], entities)  # [B, N]
    heads = score(entities, relations[r][:, None], entities[t][:, None])
    return cross_entropy(tails, t) + cross_entropy(heads, h)


# --- training and evaluation -------------------------------------------------------------------------


def adagrad(parameter: Tensor, total: Tensor, gradient: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """One step of Adagrad: the new parameter and the new sum of squared gradients, which starts at 0."""
    total = total + gradient.square()
    return parameter - lr * gradient / (total.sqrt() + 1e-10), total


def corrupt(batch: Tensor, num_entities: int, count: int, generator: torch.Generator) -> Tensor:
    """Negatives [B, count, 3]: the head or the tail of each positive, with equal chance, replaced by any entity."""
    triples, size = batch[:, None].repeat(1, count, 1), len(batch)
    side = 2 * torch.randint(2, (size,), generator=generator)
    triples[torch.arange(size), :, side] = torch.randint(num_entities, (size, count), generator=generator)
    return triples


def train(
    triples: Tensor, num_entities: int, *, K: int = 4, L: int = 100, epochs: int = 100, batch_size: int = 1024,
    negatives: int = 10, weight: float = 0.01, lr: float = 0.1, seed: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """D_K-Gumbel trained on triples [n, 3]: the entities [N, 2L], and the ids of the relations' elements [R, L]."""
    draw, num_relations = torch.Generator().manual_seed(seed), int(triples[:, 1].max()) + 1
    entities = torch.randn(num_entities, 2 * L, generator=draw, dtype=torch.float64) * 0.1
    logits = torch.randn(num_relations, L, 2 * K, generator=draw, dtype=torch.float64)
    entity_total, logit_total = torch.zeros_like(entities), torch.zeros_like(logits)
    for epoch in range(epochs):
        temperature = max(0.5, 3 * math.exp(-0.001 * epoch))
        for batch in triples[torch.randperm(len(triples), generator=draw)].split(batch_size):
            parameters = entities.requires_grad_(), logits.requires_grad_()
            noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=draw, dtype=torch.float64)))  # q
            relations = gumbel_relations(logits, noise, temperature)
            loss = equation_2(entities, relations, batch, corrupt(batch, num_entities, negatives, draw), weight)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                entities, entity_total = adagrad(entities, entity_total, gradients[0], lr)
                logits, logit_total = adagrad(logits, logit_total, gradients[1], lr)
    return entities, logits.argmax(-1)  # evaluation has no noise: the likeliest elements


def filtered_rank(scores: Tensor, answer: int, known: Tensor) -> float:
    """The rank of an answer by scores [N] without the other known answers; of equal scores, half rank before it."""
    others = torch.ones(len(scores), dtype=torch.bool)
    others[known], others[answer] = False, False
    greater, equal = scores[others] > scores[answer], scores[others] == scores[answer]
    return 1 + int(greater.sum()) + int(equal.sum()) / 2


# --- paths: the elements answer by themselves; it is not in the paper (`models.path_model`) ------------------


def path_states(
    edges: Tensor,
    fans: Tensor,
    degrees: Tensor,
    start: int,
    vector: Tensor,
    gates: Tensor,
    steps: Tensor,
    shared: Tensor,
    mixing: Tensor | None = None,
    rescaling: Tensor | None = None,
) -> Tensor:
    """States [N, 2, L] of one question: sums over the paths from its entity `start` of products of elements.

    edges [E, 3]: source, step and target, in both directions, without the fact that is asked for. fans [E]: the number
    of entities to which the step leads from the source. degrees [N]: of the entities. Neither counts the fact. vector
    [2, L]: e_q. gates [T, 2R, L]: γ_t(q, s). steps [2R, L, 2, 2]: the elements D_s. shared [4, T, L]: α, β, c and f.
    mixing [T, L, L] and rescaling [T, L], of models with entity gates: W_t and b_t(q).
    """
    source, step, target = edges.T
    first = torch.zeros(len(degrees), *vector.shape, dtype=vector.dtype)
    first[start] = vector
    state = first
    for t, (gate, keep, restart, exponent, fan) in enumerate(zip(gates, *shared, strict=True)):
        sent = torch.einsum("elij,eil->ejl", steps[step], state[source])  # D_sᵀ x
        sent = sent * gate[step][:, None] * fans[:, None, None] ** -fan
        arrived = torch.zeros_like(state).index_add(0, target, sent)
        scale = (1 + degrees.to(vector.dtype))[:, None, None] ** -exponent
        state = keep * state + restart * first + scale * arrived
        if mixing is not None and rescaling is not None:
            lengths = state.square().sum(1, keepdim=True).add(1e-12).sqrt()
            seen = torch.cat([state / lengths**0.75, lengths**0.25], 1).flatten(1)  # components shrunk to ‖x‖^¼
            z = rescaling[t] + seen @ mixing[t]
            state = state * (1 + z / (1 + z.abs()))[:, None]
    return state


def path_scores(states: Tensor, reading: Tensor, bias: Tensor, reached: Tensor) -> Tensor:
    """Scores [N] from states, the weights w and ω [3, L] of the question, and the entities that paths reach [N]."""
    lengths = states.square().sum(1).add(1e-12).sqrt()  # [N, L]
    parts = (states * reading[:2]).sum(1) + lengths * reading[2]
    return torch.where(reached, bias + (parts / (1 + lengths).sqrt()).sum(-1), 0.0)
