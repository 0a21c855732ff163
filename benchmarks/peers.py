"""Other libraries on the same task on a CPU: ComplEx in PyKEEN 1.11.1 and in TorchKGE 0.17.7.

Each peer runs its library's own code as documented, with the fastest ordinary settings we found and without progress
bars. Entities and relations have the indices of the graph.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dihedral import Graph


class PyKEEN:
    """ComplEx with PyKEEN's sLCWA training loop, rank-based evaluator and `predict_target`."""

    def __init__(
        self, graph: Graph, dimension: int, *, batch_size: int = 1024, negatives: int = 10, lr: float = 0.1
    ) -> None:
        from pykeen.models import ComplEx
        from pykeen.training import SLCWATrainingLoop
        from pykeen.triples import CoreTriplesFactory

        for name in ("pykeen", "torch_max_mem"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self.batch_size = batch_size
        self.epochs = 0
        self.train, self.valid, self.test = (
            torch.from_numpy(triples).long() for triples in (graph.train, graph.valid, graph.test)
        )
        self.triples = CoreTriplesFactory(self.train, graph.num_entities, graph.num_relations)
        self.model = ComplEx(
            triples_factory=self.triples,
            embedding_dim=dimension // 2,  # complex numbers
            loss="softplus",
            regularizer=None,  # enabled by default and slow; the other libraries train without one
            random_seed=0,
        )
        self.loop = SLCWATrainingLoop(
            model=self.model,
            triples_factory=self.triples,
            optimizer=torch.optim.Adagrad(self.model.get_grad_params(), lr=lr),
            negative_sampler="basic",
            negative_sampler_kwargs={"num_negs_per_pos": negatives},
        )

    def epoch(self) -> float:
        """Train one epoch and return its mean loss."""
        self.epochs += 1
        self.loop.train(
            self.triples,
            num_epochs=self.epochs,  # the total, including earlier epochs
            batch_size=self.batch_size,
            continue_training=True,  # otherwise each call starts from new weights
            use_tqdm=False,
            num_workers=0,
            pin_memory=False,
        )
        return self.loop.losses_per_epochs[-1]

    def rank(self, limit: int | None = None, *, batch_size: int = 32) -> float:
        """Filtered realistic MRR, both sides, of the test split or its first `limit` triples.

        The batch size is PyKEEN's default on a CPU; smaller and larger ones were no faster on 2 cores.
        Memory is about 8 bytes x batch size x entities x L.
        """
        from pykeen.evaluation import RankBasedEvaluator

        results = RankBasedEvaluator().evaluate(
            self.model,
            self.test[:limit],
            batch_size=batch_size,
            additional_filter_triples=[self.train, self.valid, self.test],  # includes test, which `limit` may truncate
            use_tqdm=False,
        )
        return float(results.get_metric("both.realistic.inverse_harmonic_mean_rank"))

    def top10(self, heads: Sequence[int], relations: Sequence[int]) -> list[list[int]]:
        """The top ten tails of each query (head, relation, ?); PyKEEN takes one query per call."""
        from pykeen.predict import predict_target

        return [
            predict_target(self.model, head=int(head), relation=int(relation)).df["tail_id"].head(10).tolist()
            for head, relation in zip(heads, relations, strict=True)
        ]

    @torch.no_grad()
    def load_embeddings(self, entities: Tensor, relations: Tensor) -> None:
        """Load the weights of dihedral's ComplEx: entities [N, 2L], relations [R, 2, L].

        dihedral's block [[p, -q], [q, p]] gives hᵀ R t = Re(h (p - iq) t̄), PyKEEN's score with r = p - iq.
        """
        x, y = entities.chunk(2, dim=1)
        p, q = relations.unbind(1)
        _fill(self.model.entity_representations[0], x, y)
        _fill(self.model.relation_representations[0], p, -q)


def _fill(representation: Any, real: Tensor, imaginary: Tensor) -> None:
    """Set PyKEEN's complex embeddings, which store the two parts of a number next to each other."""
    representation._embeddings.weight.copy_(torch.stack([real, imaginary], dim=-1).flatten(1))


class TorchKGE:
    """ComplEx with TorchKGE's documented training loop, `LinkPredictionEvaluator` and `EntityInference`."""

    def __init__(
        self, graph: Graph, dimension: int, *, batch_size: int = 1024, negatives: int = 10, lr: float = 0.1
    ) -> None:
        from torchkge import ComplExModel, KnowledgeGraph, LogisticLoss
        from torchkge.sampling import UniformNegativeSampler
        from torchkge.utils import DataLoader

        heads, relations, tails = torch.from_numpy(graph.known).long().unbind(1)
        known = KnowledgeGraph(
            kg={"heads": heads, "tails": tails, "relations": relations},
            ent2ix={name: i for i, name in enumerate(graph.entities)},
            rel2ix={name: i for i, name in enumerate(graph.relations)},
        )
        train, _, self.test = known.split_kg(sizes=(len(graph.train), len(graph.valid), len(graph.test)))
        torch.manual_seed(0)
        self.model = ComplExModel(dimension // 2, graph.num_entities, graph.num_relations)
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=lr)
        self.loss = LogisticLoss()
        self.batches = DataLoader(train, batch_size=batch_size)
        self.sampler = UniformNegativeSampler(train, n_neg=negatives)

    def epoch(self) -> float:
        """Train one epoch and return its mean loss per batch. (TorchKGE's `Trainer` supports one negative only.)"""
        total = 0.0
        for heads, tails, relations in self.batches:
            negative_heads, negative_tails = self.sampler.corrupt_batch(heads, tails, relations)
            self.optimizer.zero_grad()
            positive, negative = self.model(heads, tails, relations, negative_heads, negative_tails)
            loss = self.loss(positive, negative)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        self.model.normalize_parameters()
        return total / len(self.batches)

    @torch.no_grad()
    def rank(self, limit: int | None = None, *, batch_size: int = 1) -> float:
        """Filtered MRR, both sides, of the test split or its first `limit` triples.

        TorchKGE ranks ties pessimistically, so its MRR is below the realistic one if scores are exactly equal.
        A batch size of 1 was fastest on 2 idle cores. A batch of 16 took five times as long, because its buffers of
        12 bytes x batch size x entities x L are returned to the system after each use.
        """
        from torchkge.evaluation import LinkPredictionEvaluator

        test = self.test
        if limit is not None and limit < test.n_facts:
            test, _ = test.split_kg(sizes=(limit, test.n_facts - limit))  # keeps the filter of the complete graph
        evaluator = LinkPredictionEvaluator(self.model, test)
        evaluator.evaluate(b_size=batch_size, verbose=False)
        return float(evaluator.mrr()[1])

    @torch.no_grad()
    def top10(self, heads: Sequence[int], relations: Sequence[int], *, batch_size: int = 1) -> list[list[int]]:
        """The top ten tails of each query (head, relation, ?)."""
        from torchkge.inference import EntityInference

        inference = EntityInference(self.model, torch.as_tensor(heads).long(), torch.as_tensor(relations).long(), 10)
        inference.scores = _Discard()
        inference.evaluate(b_size=batch_size, verbose=False)
        return inference.predictions.tolist()


class _Discard:
    """Replaces the scores of `EntityInference`: TorchKGE 0.17.7 writes them to a wrong index and always fails."""

    def __setitem__(self, index: object, value: Tensor) -> None:
        pass
