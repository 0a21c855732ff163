"""MRR against seconds of training on one device: `python -m benchmarks.curve [--graph FB15k-237] [--draw PNG]`.

Three curves: graded relations and ComplEx in this library, and ComplEx as kbc trains it (Lacroix et al. 2018): plain
PyTorch, autograd, dense Adagrad, reciprocal relations, N3 on all factors. kbc's licence does not permit
redistribution here, so the third is written after the paper. Seconds are those of training alone, including the
compilation in the first epoch, and without loading and validation. Triton keeps compiled kernels on disk, so only the
first run on a machine compiles them. Test is shown at each point to read off when a value is reached.

`--only graded` measures one curve and keeps the others of the record; `--label` is added to its name.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dihedral as dh
from benchmarks.record import RESULTS, save
from dihedral.evaluation import Evaluator
from dihedral.learn import Trainer, load_recipe
from dihedral.learn.loop import Event
from dihedral.runtime.device import choose_device
from dihedral.scoring.embedding import EmbeddingScorer

Curve = list[dict[str, float]]
NOTE = "one seed each, run alone on the card"
GRADED = {"dimension": 1000, "K": 8, "epochs": 40, "validate_every": 2}
COMPLEX = {"epochs": 40, "validate_every": 2}


@dataclass(frozen=True)
class Kbc:
    """The settings that kbc publishes for FB15k-237."""

    rank: int = 1000
    batch_size: int = 1000
    lr: float = 0.1
    weight: float = 0.05  # of N3
    init: float = 0.001
    epochs: int = 20


class PlainComplEx(nn.Module):
    """ComplEx with reciprocal relations."""

    def __init__(self, graph: dh.Graph, setting: Kbc) -> None:
        super().__init__()
        self.rank, self.weight = setting.rank, setting.weight
        self.entities = nn.Embedding(graph.num_entities, 2 * setting.rank)
        self.relations = nn.Embedding(2 * graph.num_relations, 2 * setting.rank)
        for table in (self.entities, self.relations):
            table.weight.data.normal_().mul_(setting.init)

    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Vectors [n, 2 rank] whose product with an entity is Re⟨h, r, conj t⟩."""
        a, b = heads.chunk(2, dim=1)
        c, d = relations.chunk(2, dim=1)
        return torch.cat([a * c - b * d, a * d + b * c], dim=1)

    def penalty(self, *factors: Tensor) -> Tensor:
        """N3: the mean over triples of the cubed moduli of their factors."""
        cubes = [(part[:, : self.rank] ** 2 + part[:, self.rank :] ** 2).sqrt() ** 3 for part in factors]
        return (
            self.weight * sum((cube.sum() for cube in cubes), torch.zeros((), device=cubes[0].device)) / len(cubes[0])
        )

    def loss(self, triples: Tensor) -> Tensor:
        h, r, t = self.entities(triples[:, 0]), self.relations(triples[:, 1]), self.entities(triples[:, 2])
        scores = self.queries(h, r) @ self.entities.weight.T
        return F.cross_entropy(scores, triples[:, 2]) + self.penalty(h, r, t)

    @torch.no_grad()
    def mrr(self, graph: dh.Graph, triples: Tensor, chunk: int = 1000) -> float:
        """Filtered MRR of both sides, with realistic ranks."""
        known, total = graph.index.to(str(self.entities.weight.device)), 0.0
        back = triples[:, [2, 1, 0]] + torch.tensor([0, graph.num_relations, 0], device=triples.device)
        for part in torch.cat([triples, back]).split(chunk):
            scores = self.queries(self.entities(part[:, 0]), self.relations(part[:, 1])) @ self.entities.weight.T
            true = scores.gather(1, part[:, 2:])
            row, answer = known.answers(part[:, 0], part[:, 1])
            scores[row, answer] = -torch.inf
            total += float((1 / (1 + (scores > true).sum(1) + (scores == true).sum(1) / 2)).sum())
        return total / (2 * len(triples))


def train_plain(graph: dh.Graph, setting: Kbc, device: str) -> Curve:
    torch.manual_seed(0)
    model = PlainComplEx(graph, setting).to(device)
    optimiser = torch.optim.Adagrad(model.parameters(), lr=setting.lr)
    splits = {name: torch.from_numpy(graph.split(name)).long().to(device) for name in ("train", "valid", "test")}
    back = splits["train"][:, [2, 1, 0]] + torch.tensor([0, graph.num_relations, 0], device=device)
    triples, spent, curve = torch.cat([splits["train"], back]), 0.0, []
    for epoch in range(1, setting.epochs + 1):
        started = now()
        for batch in torch.randperm(len(triples), device=device).split(setting.batch_size):
            optimiser.zero_grad()
            model.loss(triples[batch]).backward()
            optimiser.step()
        spent += now() - started
        valid, test = (model.mrr(graph, splits[name]) for name in ("valid", "test"))
        curve.append({"epoch": epoch, "seconds": round(spent, 3), "valid": valid, "test": test})
        print("plain", curve[-1], flush=True)
    return curve


def train_here(graph: dh.Graph, recipe: dh.Recipe, device: str) -> Curve:
    curve: Curve = []
    test = Evaluator(graph, "test", device=torch.device(device))

    def watch(event: Event) -> None:
        if "valid_mrr" in event:
            with trainer.parameters.averaged():
                found = test(EmbeddingScorer(trainer.model)).mrr
            spent = round(trainer.state.seconds, 3)
            curve.append({"epoch": event["epoch"], "seconds": spent, "valid": event["valid_mrr"], "test": found})
            print(recipe.model, curve[-1], flush=True)

    trainer = Trainer(graph, recipe, seed=0, device=torch.device(device), callback=watch)
    trainer.run()
    return curve


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


def draw(record: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, curve in record["curves"].items():
        points = [(point["seconds"], point["test"]) for point in curve]
        axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    machine = record["environment"]["gpu"] or record["environment"]["cpu"]
    axis.set(xlim=0, xlabel="seconds of training", ylabel="test MRR", title=f"{record['graph']}, {machine}")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="FB15k-237")
    parser.add_argument("--epochs", type=int, help="instead of those of each curve")
    parser.add_argument("--dimension", type=int, help="instead of those of each curve")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="Measure the curves whose names hold this text.")
    parser.add_argument("--label", default="", help="Added to the names of the curves.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--draw", type=Path, metavar="PNG", help="Draw the record instead of training.")
    options = parser.parse_args()
    if options.draw:
        draw(json.loads((options.out / "curve.json").read_text(encoding="utf-8")), options.draw)
        return
    graph, device = dh.load_graph(options.graph), choose_device(options.device)
    changes: dict[str, Any] = {"epochs": options.epochs} if options.epochs else {}
    changes |= {"dimension": options.dimension} if options.dimension else {}
    graded = load_recipe("best/fb15k-237-d16-graded").replace(**GRADED | changes)
    complex_ = load_recipe("best/fb15k-237-complex").replace(**COMPLEX | changes)
    kbc = Kbc(epochs=options.epochs or Kbc.epochs, rank=(options.dimension or 2 * Kbc.rank) // 2)
    path = options.out / "curve.json"
    curves: dict[str, Curve] = json.loads(path.read_text(encoding="utf-8"))["curves"] if path.exists() else {}
    for name, make in {
        f"graded D{graded.K}, 2L = {graded.dimension}": lambda: train_here(graph, graded, device),
        f"ComplEx, 2L = {complex_.dimension}": lambda: train_here(graph, complex_, device),
        f"ComplEx as in kbc, 2L = {2 * kbc.rank}": lambda: train_plain(graph, kbc, device),
    }.items():
        if options.only not in name:
            continue
        curves[name + options.label] = make()
        save("curve", {"graph": graph.name, "note": NOTE, "curves": curves}, options.out)


if __name__ == "__main__":
    main()
