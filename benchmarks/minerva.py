"""MINERVA on a benchmark: `python -m benchmarks.minerva [--graphs umls] [--seeds 0 1 2]`.

A compact implementation of Das et al. (ICLR 2018), which the paper's tables quote. An agent starts at the head of
(h, r, ?) and walks a fixed number of signed steps, or stays where it is. REINFORCE rewards it for ending at the tail.
The policy is an LSTM over the steps taken. Answers are the entities that a beam search ends at, ranked by the
probability of their walks together. As in the original, only tails are asked for, the edge of the question itself and
other answers at the last step are hidden in training, and an answer that no walk reaches has reciprocal rank 0. The
iteration is chosen on valid; test is ranked once.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dihedral as dh
from benchmarks.record import RESULTS, save
from dihedral.graph import GraphIndex


@dataclass(frozen=True)
class Setting:
    """The settings of one graph; those of the original where it names them."""

    width: int = 100  # of embeddings and of the LSTM
    steps: int = 3
    actions: int = 200  # edges of an entity that are offered, drawn at random once if there are more
    batch: int = 256
    rollouts: int = 20
    iterations: int = 1500
    lr: float = 0.001
    entropy: float = 0.05  # weight of the policy's entropy, which decays
    entropy_decay: float = 0.9  # every 200 iterations
    beam: int = 100
    entities: bool = True  # whether the policy sees where it is, or relations only
    validate_every: int = 250


SETTINGS = {
    "umls": Setting(iterations=1000, steps=2),
    "WN18RR": Setting(iterations=2000, entities=False, validate_every=100),
    "FB15k-237": Setting(iterations=3000, entities=False, width=50, validate_every=100),
}


@dataclass(frozen=True)
class Actions:
    """The edges of each entity in training, padded: staying comes first."""

    steps: Tensor  # [N, A]; 2R is staying, 2R + 1 is padding
    ends: Tensor  # [N, A]
    num_relations: int

    @classmethod
    def build(cls, index: GraphIndex, limit: int, seed: int) -> Actions:
        count, nothing = index.num_entities, 2 * index.num_relations + 1
        order = torch.randperm(len(index.ends), generator=torch.Generator().manual_seed(seed))
        source = index.sources[order]
        by_source = torch.argsort(source, stable=True)
        order, source = order[by_source], source[by_source]  # the edges of an entity in random order
        column = torch.arange(len(order)) - index.entity_starts[source] + 1
        kept = column < limit
        width = min(limit, int(column.max()) + 1)
        steps, ends = torch.full((count, width), nothing), torch.arange(count)[:, None].repeat(1, width)
        steps[:, 0] = nothing - 1
        steps[source[kept], column[kept]] = index.steps[order[kept]].long()
        ends[source[kept], column[kept]] = index.ends[order[kept]].long()
        return cls(steps, ends, index.num_relations)

    def to(self, device: str) -> Actions:
        return Actions(self.steps.to(device), self.ends.to(device), self.num_relations)


class Policy(nn.Module):
    """Scores the actions of an entity from the question and the walk so far."""

    def __init__(self, graph: dh.Graph, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.relations = nn.Embedding(2 * graph.num_relations + 2, width)
        self.entities = nn.Embedding(graph.num_entities, width) if setting.entities else None
        action = width * (2 if setting.entities else 1)
        self.memory = nn.LSTMCell(action, 2 * width)
        self.hidden = nn.Linear(2 * width + action, 2 * width)
        self.choice = nn.Linear(2 * width, action)
        nn.init.xavier_uniform_(self.relations.weight)
        if self.entities is not None:
            nn.init.xavier_uniform_(self.entities.weight)

    def embed(self, steps: Tensor, entities: Tensor) -> Tensor:
        parts = [self.relations(steps)] + ([self.entities(entities)] if self.entities is not None else [])
        return torch.cat(parts, dim=-1)

    def forward(
        self, state: tuple[Tensor, Tensor], question: Tensor, here: Tensor, steps: Tensor, ends: Tensor
    ) -> Tensor:
        """Log-probabilities [n, A] of the actions (steps, ends) at the entities `here`."""
        about = [state[0], self.relations(question)] + ([self.entities(here)] if self.entities is not None else [])
        wanted = self.choice(F.relu(self.hidden(torch.cat(about, dim=-1)))).split(self.relations.embedding_dim, dim=1)
        scores = (wanted[0] @ self.relations.weight.T).gather(1, steps)
        if self.entities is not None:
            scores = scores + (wanted[1] @ self.entities.weight.T).gather(1, ends)
        return scores.masked_fill(steps == self.relations.num_embeddings - 1, -1e9).log_softmax(1)

    def start(self, question: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        zero = self.relations.weight.new_zeros(len(here), self.memory.hidden_size)
        begin = torch.full_like(question, self.relations.num_embeddings - 2)
        state: tuple[Tensor, Tensor] = self.memory(self.embed(begin, here), (zero, zero))
        return state


class Agent:
    """A policy in training on one graph."""

    def __init__(self, graph: dh.Graph, setting: Setting, seed: int, device: str) -> None:
        torch.manual_seed(seed)
        self.graph, self.setting, self.device = graph, setting, device
        self.actions = Actions.build(graph.train_index, setting.actions, seed).to(device)
        self.index = graph.train_index.to(device)
        self.known = graph.index.to(device)
        self.policy = Policy(graph, setting).to(device)
        self.optimiser = torch.optim.Adam(self.policy.parameters(), lr=setting.lr)
        self.baseline = 0.0

    def iterate(self, triples: Tensor, number: int) -> float:
        """One step of REINFORCE on questions [B, 3]; returns the share of rollouts that were rewarded."""
        setting = self.setting
        head, question, tail = triples.repeat_interleave(setting.rollouts, dim=0).T
        here, state = head, self.policy.start(question, head)
        chosen_log, entropy = [], []
        for step in range(setting.steps):
            steps, ends = self.actions.steps[here], self.actions.ends[here]
            # hide the edge that the question is about, wherever the walk meets it, and other answers at the end
            hidden = (here == head)[:, None] & (steps == question[:, None]) & (ends == tail[:, None])
            if step == setting.steps - 1:
                hidden |= (ends != tail[:, None]) & self._answers(head, question, ends)
            steps = steps.masked_fill(hidden, self.policy.relations.num_embeddings - 1)
            log = self.policy(state, question, here, steps, ends)
            action = torch.multinomial(log.detach().exp(), 1)
            chosen_log.append(log.gather(1, action)[:, 0])
            entropy.append(-(log.exp() * log).sum(1).mean())
            taken, here = steps.gather(1, action)[:, 0], ends.gather(1, action)[:, 0]
            state = self.policy.memory(self.policy.embed(taken, here), state)
        reward = (here == tail).float()
        advantage = reward - self.baseline
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        self.baseline = 0.95 * self.baseline + 0.05 * float(reward.mean())
        weight = setting.entropy * setting.entropy_decay ** (number / 200)
        loss = -(advantage[:, None] * torch.stack(chosen_log, dim=1)).mean() - weight * torch.stack(entropy).mean()
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 5.0)
        self.optimiser.step()
        return float(reward.mean())

    def _answers(self, head: Tensor, question: Tensor, ends: Tensor) -> Tensor:
        """Whether each end [n, A] answers its question in training."""
        width = ends.shape[1]
        found = self.index.locate(head.repeat_interleave(width), question.repeat_interleave(width), ends.flatten())
        return (found >= 0).view(ends.shape)

    @torch.no_grad()
    def rank(self, triples: Tensor, chunk: int = 128) -> dict[str, float]:
        """Filtered metrics of the tails; equal probabilities share their mean rank."""
        ranks = torch.cat([self._ranks(part.to(self.device)) for part in triples.split(chunk)])
        reached = ranks.isfinite().float()
        return {
            "mrr": float((1 / ranks).mean()),
            **{f"hits@{k}": float((ranks <= k).float().mean()) for k in (1, 3, 10)},
            "reached": float(reached.mean()),
        }

    def _ranks(self, triples: Tensor) -> Tensor:
        head, relation, tail = triples.T
        scores = self._beam(head, relation)  # [n, N]
        row, answer = self.known.answers(head, relation)
        true = scores.gather(1, tail[:, None])[:, 0]
        scores[row, answer] = -1.0
        higher, equal = (scores > true[:, None]).sum(1), (scores == true[:, None]).sum(1)
        ranks = 1 + higher + equal / 2
        return torch.where(true > 0, ranks, torch.inf)

    def _beam(self, head: Tensor, relation: Tensor) -> Tensor:
        """The probability that a walk of the beam ends at each entity: [n, N]."""
        setting, count = self.setting, len(head)
        here, total = head[:, None], head.new_zeros(count, 1).float()  # [n, beams]
        state = self.policy.start(relation, head)
        for _ in range(setting.steps):
            beams = here.shape[1]
            flat, question = here.flatten(), relation.repeat_interleave(beams)
            steps, ends = self.actions.steps[flat], self.actions.ends[flat]
            log = self.policy(state, question, flat, steps, ends).view(count, beams, -1) + total[..., None]
            total, place = log.flatten(1).topk(min(setting.beam, log[0].numel()), dim=1)
            parent = place // log.shape[2] + torch.arange(count, device=head.device)[:, None] * beams  # in flat order
            action = place % log.shape[2]
            taken = steps[parent.flatten()].gather(1, action.flatten()[:, None])[:, 0]
            here = ends[parent.flatten()].gather(1, action.flatten()[:, None])[:, 0].view(count, -1)
            kept = state[0][parent.flatten()], state[1][parent.flatten()]
            state = self.policy.memory(self.policy.embed(taken, here.flatten()), kept)
        scores = torch.zeros(count, self.graph.num_entities, device=head.device, dtype=torch.float64)
        return scores.scatter_add_(1, here, total.double().exp())  # 0 for walks over padding


def train(graph: dh.Graph, setting: Setting, seed: int, device: str, minutes: float = math.inf) -> dict[str, Any]:
    """Train an agent, validate it on up to 1000 questions, and rank test with the best policy."""
    agent = Agent(graph, setting, seed, device)
    splits = {name: torch.from_numpy(graph.split(name)).long() for name in ("train", "valid", "test")}
    generator = torch.Generator().manual_seed(seed)
    sample = splits["valid"][torch.randperm(len(splits["valid"]), generator=generator)[:1000]]
    triples, best, curve = splits["train"].to(device), {"mrr": -1.0}, {}
    started = perf_counter()
    weights: dict[str, Tensor] = {}
    for number in range(1, setting.iterations + 1):
        batch = triples[torch.randint(len(triples), (setting.batch,), generator=generator).to(device)]
        rewarded = agent.iterate(batch, number)
        if number % setting.validate_every == 0:
            found = agent.rank(sample)
            curve[number] = round(found["mrr"], 4)
            print(f"{graph.name}, seed {seed}, {number}: rewarded {rewarded:.3f}, valid {found['mrr']:.4f}", flush=True)
            if found["mrr"] > best["mrr"]:
                best = found | {"iteration": number}
                weights = {name: tensor.clone() for name, tensor in agent.policy.state_dict().items()}
            if perf_counter() - started > 60 * minutes:
                break
    seconds = perf_counter() - started
    agent.policy.load_state_dict(weights)
    return {"graph": graph.name, "seed": seed, "setting": asdict(setting), "valid_sample": best, "curve": curve,
            "valid": agent.rank(splits["valid"]), "test": agent.rank(splits["test"]), "seconds": seconds,
            "device": device}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=list(SETTINGS), default=["umls"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=JSON", help="instead of the graph's settings")
    parser.add_argument("--minutes", type=float, default=math.inf, help="limit on the time of each run")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for name in options.graphs:
        changes = {key: json.loads(value) for key, _, value in (each.partition("=") for each in options.set)}
        setting = replace(SETTINGS[name], **changes)
        for seed in options.seeds:
            rows.append(train(dh.load_graph(name), setting, seed, options.device, options.minutes))
            save("minerva", {"rows": rows}, options.out)
        print(name, "test MRR", round(mean(row["test"]["mrr"] for row in rows if row["graph"] == rows[-1]["graph"]), 4))


if __name__ == "__main__":
    main()
