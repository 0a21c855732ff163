"""The index of known answers: which tails complete (head, relation, ?), which heads (?, relation, tail)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dihedral.graph.steps import Side
from dihedral.graph.triples import Triples, keys_fit


def anchors_and_targets(triples: Tensor, side: Side) -> tuple[Tensor, Tensor, Tensor]:
    """Triples [n, 3] as questions for one side: the given entity, the relation, the answer."""
    head, relation, tail = triples.unbind(-1)
    return (head, relation, tail) if side == "tail" else (tail, relation, head)


@dataclass(frozen=True)
class KnownAnswers:
    """Answers in compressed rows: those of question keys[i] are answers[starts[i]:starts[i+1]], sorted."""

    keys: Tensor  # int64 [questions], sorted: anchor * num_relations + relation
    starts: Tensor  # int64 [questions + 1]
    answers: Tensor  # int64 [known]
    num_relations: int

    @classmethod
    def build(cls, triples: Triples, side: Side, num_relations: int, num_entities: int) -> KnownAnswers:
        anchor, answer = (0, 2) if side == "tail" else (2, 0)
        question = triples[:, anchor].astype(np.int64)
        question *= num_relations
        question += triples[:, 1]
        if keys_fit(num_entities, num_relations):
            question *= num_entities
            question += triples[:, answer]
            question.sort()
            question, answers = np.divmod(question[np.diff(question, prepend=-1) > 0], num_entities)
        else:
            answers = triples[:, answer].astype(np.int64)
            order = np.lexsort((answers, question))
            question, answers = question[order], answers[order]
            new = (np.diff(question, prepend=-1) > 0) | (np.diff(answers, prepend=-1) != 0)
            question, answers = question[new], answers[new]
        first = np.flatnonzero(np.diff(question, prepend=-1))
        return cls(
            keys=torch.from_numpy(question[first]),
            starts=torch.from_numpy(np.append(first, len(question))),
            answers=torch.from_numpy(answers),
            num_relations=num_relations,
        )

    def to(self, device: torch.device | str) -> KnownAnswers:
        return KnownAnswers(self.keys.to(device), self.starts.to(device), self.answers.to(device), self.num_relations)

    def of(self, anchors: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        """All known answers of a batch of questions, flat: (row in the batch, answer)."""
        wanted = anchors.long() * self.num_relations + relations.long()
        place = torch.searchsorted(self.keys, wanted).clamp_(max=max(len(self.keys) - 1, 0))
        if len(self.keys) == 0:
            empty = wanted.new_empty(0)
            return empty, empty
        start = self.starts[place]
        count = torch.where(self.keys[place] == wanted, self.starts[place + 1] - start, 0)
        row = torch.repeat_interleave(torch.arange(len(wanted), device=wanted.device), count)
        before = count.cumsum(0) - count  # answers of earlier rows
        within = torch.arange(len(row), device=wanted.device) - before[row]
        return row, self.answers[start[row] + within]
