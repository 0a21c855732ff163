"""ConvE and R-GCN: `python -m benchmarks.neural [--graphs umls] [--models ConvE] [--device cuda]`.

ConvE (Dettmers et al. 2018) and R-GCN (Schlichtkrull et al. 2018, DistMult decoder) are PyKEEN's models. R-GCN is
trained by PyKEEN; ConvE by the loop below, because PyKEEN's builds the targets of every batch on the CPU.
The first seed tries every setting of a model; the other seeds use the best setting on valid. The epoch is also chosen
on valid. Test is ranked once per seed: both sides, all triples, realistic ranks, filtered with train, valid and test.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import warnings
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import dihedral as dh
from benchmarks.record import RESULTS, environment, save

METRICS = {"mrr": "inverse_harmonic_mean_rank", "hits@1": "hits_at_1", "hits@3": "hits_at_3", "hits@10": "hits_at_10"}
NOTE = (
    "These are small searches, not the best results of these models: settings were tried with the first seed only; "
    "WN18RR and FB15k-237 have one setting, one seed and a limit on time. PyKEEN's product of all queries with all "
    "entities runs as one matrix product. Each row records the environment of its own command. Seconds include the "
    "ranking of valid, and other work may have used the cores or the card."
)


@dataclass(frozen=True)
class Setting:
    """Settings of one run; `model` goes to the PyKEEN model and `loop` to `train` of its training loop."""

    model: dict[str, Any]
    loop: dict[str, Any]
    lr: float
    epochs: int
    validate_every: int = 5
    negatives: int | None = None  # per triple; None means all entities


def large_settings(model: str) -> list[Setting]:
    """The setting for WN18RR and FB15k-237, on a GPU."""
    if model == "ConvE":
        sizes = {"embedding_dim": 200, "input_dropout": 0.2, "feature_map_dropout": 0.2, "output_dropout": 0.3}
        return [Setting(sizes, {"batch_size": 512, "label_smoothing": 0.1}, lr=0.002, epochs=300, validate_every=10)]
    sizes = {
        "embedding_dim": 200,
        "decomposition": "block",
        "decomposition_kwargs": {"num_blocks": 40},
        "edge_weighting": "inverse_in_degree",
        "loss": "CrossEntropy",
    }
    return [Setting(sizes, {"batch_size": 8192}, lr=0.01, epochs=300, validate_every=10)]


def settings(model: str, graph: dh.Graph) -> list[Setting]:
    """Return the settings to try; larger graphs have smaller settings."""
    if graph.num_entities > 10_000:
        return large_settings(model)
    large = graph.num_entities > 1000
    if model == "ConvE":
        dropouts = [(0.2, 0.2, 0.3), (0.1, 0.1, 0.2)]  # the values of the paper, and lower ones
        return [
            Setting(
                {
                    "embedding_dim": 100 if large else 200,
                    "input_dropout": before,
                    "feature_map_dropout": maps,
                    "output_dropout": after,
                },
                {"batch_size": 128, "label_smoothing": 0.0 if large else 0.1},
                lr=0.003,
                epochs=35 if large else 80,
            )
            for before, maps, after in dropouts
        ]
    trials = [
        (0.01, None, "CrossEntropy"),
        (0.01, 10, "BCEWithLogits"),
    ]  # all entities; ten samples as in the paper
    if not large:
        trials += [(0.003, negatives, loss) for _, negatives, loss in trials]
    return [
        Setting(
            {
                "embedding_dim": 100,
                "decomposition": "block",
                "decomposition_kwargs": {"num_blocks": 10},
                "edge_weighting": "inverse_in_degree",
                "loss": loss,
            },
            {"batch_size": 2048 if large else 1024},
            lr=lr,
            epochs=25 if large else 40,
            negatives=negatives,
        )
        for lr, negatives, loss in trials
    ]


class AllTails:
    """Trains (head, relation) pairs against all tails; heads are the tails of inverse relations."""

    def __init__(self, model: Any, triples: Any, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.epoch = model, optimizer, 0
        device = model.device
        facts = triples._add_inverse_triples_if_necessary(triples.mapped_triples).to(device)
        self.pairs, pair = facts[:, :2].unique(dim=0, return_inverse=True)
        order = pair.argsort()
        self.tails = facts[order, 2]  # by pair
        self.counts = torch.bincount(pair, minlength=len(self.pairs))
        self.starts = self.counts.cumsum(0) - self.counts

    def train(self, triples: Any, num_epochs: int, batch_size: int, label_smoothing: float = 0.0, **_: Any) -> None:
        """Train up to a total number of epochs."""
        self.model.train()
        while self.epoch < num_epochs:
            for chosen in torch.randperm(len(self.pairs), device=self.pairs.device).split(batch_size):
                if len(chosen) > 1:  # normalisation over a batch needs two
                    self._step(chosen, label_smoothing)
            self.epoch += 1

    def _step(self, chosen: Tensor, label_smoothing: float) -> None:
        counts = self.counts[chosen]
        row = torch.arange(len(chosen), device=chosen.device).repeat_interleave(counts)
        first = (counts.cumsum(0) - counts).repeat_interleave(counts)
        place = self.starts[chosen].repeat_interleave(counts) + torch.arange(len(row), device=chosen.device) - first
        targets = torch.zeros(len(chosen), self.model.num_entities, device=chosen.device)
        targets[row, self.tails[place]] = 1.0
        self.optimizer.zero_grad()
        scores = self.model.score_t(self.pairs[chosen])
        loss = self.model.loss.process_lcwa_scores(scores, targets, label_smoothing, targets.shape[1])
        loss.backward()
        self.optimizer.step()
        self.model.post_parameter_update()


class Run:
    """A model in training and its best weights on valid."""

    def __init__(self, graph: dh.Graph, model: str, setting: Setting, seed: int, device: str = "cpu") -> None:
        from pykeen.models import RGCN, ConvE
        from pykeen.training import SLCWATrainingLoop, SymmetricLCWATrainingLoop
        from pykeen.triples import CoreTriplesFactory

        self.setting = setting
        self.splits = {name: torch.from_numpy(getattr(graph, name)).long() for name in ("train", "valid", "test")}
        self.triples = CoreTriplesFactory(
            self.splits["train"],
            graph.num_entities,
            graph.num_relations,
            create_inverse_triples=model == "ConvE",  # R-GCN adds its own
        )
        kind = {"ConvE": ConvE, "R-GCN": RGCN}[model]
        self.model = kind(triples_factory=self.triples, random_seed=seed, **setting.model).to(device)
        common = {
            "model": self.model,
            "triples_factory": self.triples,
            "optimizer": torch.optim.Adam(self.model.get_grad_params(), lr=setting.lr),
            "automatic_memory_optimization": False,
        }
        if model == "ConvE":
            self.loop = AllTails(self.model, self.triples, common["optimizer"])
        elif setting.negatives is None:
            self.loop = SymmetricLCWATrainingLoop(**common)
        else:
            negatives = {"num_negs_per_pos": setting.negatives}
            self.loop = SLCWATrainingLoop(**common, negative_sampler="basic", negative_sampler_kwargs=negatives)
        self.best: dict[str, Any] = {"valid": {"mrr": -1.0}}

    def train(self, minutes: float = math.inf) -> dict[str, Any]:
        """Train the model, rank valid every few epochs, and keep the weights of the best epoch."""
        started, before = perf_counter(), perf_counter()
        longest = 0.0  # part between two rankings of valid
        curve: dict[int, float] = {}
        for epoch in range(self.setting.validate_every, self.setting.epochs + 1, self.setting.validate_every):
            if perf_counter() - started + longest > 60 * minutes:
                break
            self.loop.train(
                self.triples,
                num_epochs=epoch,  # total number, including earlier epochs
                continue_training=bool(curve),
                use_tqdm=False,
                num_workers=0,
                pin_memory=False,
                **self.setting.loop,
            )
            found = self.rank("valid")
            curve[epoch] = found["mrr"]
            if found["mrr"] > self.best["valid"]["mrr"]:
                self.best = {"epoch": epoch, "valid": found}
                self.weights = {name: value.clone() for name, value in self.model.state_dict().items()}
            longest, before = max(longest, perf_counter() - before), perf_counter()
        return self.best | {"seconds": perf_counter() - started, "curve": curve}

    def test(self) -> dict[str, float]:
        """Rank test with the best weights."""
        self.model.load_state_dict(self.weights)
        return self.rank("test")

    def rank(self, split: str) -> dict[str, float]:
        from pykeen.evaluation import RankBasedEvaluator

        self.model.post_parameter_update()  # clear the entities that R-GCN caches between calls
        results = RankBasedEvaluator().evaluate(
            self.model,
            self.splits[split],
            batch_size=256,
            additional_filter_triples=list(self.splits.values()),
            use_tqdm=False,
        )
        self.model.post_parameter_update()  # otherwise the next training step uses the cached entities
        return {name: float(results.get_metric(f"both.realistic.{key}")) for name, key in METRICS.items()}


def measure(options: argparse.Namespace) -> None:
    seeds, epochs, out = options.seeds, options.epochs, options.out
    device, minutes = options.device, options.minutes
    for name in options.graphs:
        graph = dh.load_graph(name)
        for model in options.models:
            row: dict[str, Any] = {"graph": graph.name, "model": model}
            row |= {"environment": environment() | {"pykeen": version("pykeen")}, "tried": [], "runs": []}
            chosen, run, best = None, None, None
            for setting in settings(model, graph):
                setting = replace(setting, epochs=epochs or setting.epochs)
                trial = Run(graph, model, setting, 0, device)
                found = trial.train(minutes)
                row["tried"].append({"setting": asdict(setting), **found})
                print(name, model, asdict(setting), found, flush=True)
                if best is None or found["valid"]["mrr"] > best["valid"]["mrr"]:
                    chosen, run, best = setting, trial, found
            for seed in range(seeds):
                if seed:
                    run = Run(graph, model, chosen, seed, device)
                    best = run.train(minutes)
                row["runs"].append({"seed": seed, **best, "test": run.test()})
                print(name, model, row["runs"][-1], flush=True)
                row["setting"] = asdict(chosen)
                row["test"] = {key: mean(done["test"][key] for done in row["runs"]) for key in METRICS}
                unfinished = sum(done["epoch"] == max(done["curve"]) for done in row["runs"])
                row["note"] = f"{unfinished} of the runs were best on valid at the last epoch, so more epochs may help"
                keep(row, out)


def keep(row: dict[str, Any], out: Path) -> None:
    """Write the row to neural.json and keep the rows of other graphs and models."""
    path = out / "neural.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    others = [other for other in rows if (other["graph"], other["model"]) != (row["graph"], row["model"])]
    rows = sorted([*others, row], key=lambda row: (row["graph"], row["model"]))
    save("neural", {"note": NOTE, "rows": rows}, out)


def use_matrix_products() -> None:
    """Make ConvE and DistMult score all entities with one matrix product.

    PyKEEN 1.11.1 multiplies [batch, 1, L] by [1, N, L] and then sums. An epoch of ConvE on family-neural-lp takes 130 s
    with PyKEEN's product and 7 s with this one. The scores are equal up to rounding.
    """
    from pykeen.nn import modules

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return torch.einsum("...d,...d->...", a, b)

    def distmult(self: Any, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return dot(h * r, t) if h.shape == r.shape else dot(h, r * t)  # no intermediate of queries by entities

    modules.batched_dot = dot
    modules.DistMultInteraction.forward = distmult


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["umls", "family-neural-lp"])
    parser.add_argument("--models", nargs="+", choices=["ConvE", "R-GCN"], default=["ConvE", "R-GCN"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="override the number of epochs of each setting")
    parser.add_argument("--minutes", type=float, default=math.inf, help="limit on the time of each run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    use_matrix_products()
    for name in ("pykeen", "torch_max_mem"):
        logging.getLogger(name).setLevel(logging.ERROR)  # after the import, which sets the level
    warnings.filterwarnings("ignore", message=".*[Ss]parse.*")
    measure(options)


if __name__ == "__main__":
    main()
