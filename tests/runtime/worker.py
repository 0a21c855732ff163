"""Run by torchrun on each rank: executes the tasks in a JSON file; rank zero writes their results next to it."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import torch

import dihedral as dh
from dihedral.evaluation import rank_triples
from dihedral.learn import Trainer, load_recipe
from dihedral.models import build_model
from dihedral.runtime.distributed import Shard, joined, rank, restarted
from dihedral.scoring.embedding import EmbeddingScorer


def read(name):
    return dh.make_family(400, seed=1) if name == "family" else dh.load_graph(name)


def losses(graph, settings, batch=64, steps=20):
    """The first losses of a run, on batches that do not depend on the number of processes."""
    recipe = load_recipe("demo/umls").replace(**({"regulariser": "none"} | settings))
    trainer = Trainer(read(graph), recipe)
    generator = trainer.generator.manual_seed(5)
    items = trainer.triples if trainer.questions is None else trainer.questions
    order = torch.randperm(len(items), generator=generator)
    return [float(trainer.step(items[part])) for part in order.split(batch)[:steps]]


def answers(graph):
    """Ranks, top answers and scores of an untrained model."""
    graph = read(graph)
    model = build_model("dihedral-gumbel", graph.num_entities, graph.num_relations, dimension=12, seed=3)
    scorer, known = EmbeddingScorer(model), graph.index.answers
    triples = torch.from_numpy(graph.test).long()
    ranks = [rank_triples(scorer, triples, side, known) for side in ("head", "tail")]
    allowed = torch.arange(graph.num_entities) % 3 > 0
    heads, relations, _ = triples.T
    top = [
        scorer.top(heads, relations, count, exclude=exclude, allowed=mask)[1].tolist()
        for count, exclude, mask in ((5, known, None), (3, None, allowed), (graph.num_entities, None, None))
    ]
    found = scorer.top(heads, relations, 5)
    again = scorer.score(torch.stack([heads, relations, found[0][:, 0]], dim=1))
    return {
        "ranks": [[side.greater.tolist(), side.equal.tolist()] for side in ranks],
        "top": top,
        "best_scores": [found[1][:, 0].tolist(), again.tolist()],
    }


def table(rows):
    """Whether gathering a partitioned table restores it."""
    shard = Shard.mine(rows)
    numbers = torch.arange(float(rows))[:, None] * torch.ones(1, 3)
    gathered = shard.gather(numbers[shard.ids()])
    return gathered is None or bool(torch.equal(gathered, numbers))


def train(graph, out, settings, kill_at=None, stop_at=None, **options):
    """A run of `dh.train`; rank one kills itself at step `kill_at`, all ranks stop at epoch and step `stop_at`."""

    class Stop(Exception):  # noqa: N818
        pass

    def callback(event):
        if event["event"] == "step" and [event["epoch"], event["step"]] == stop_at:
            raise Stop

    if kill_at and rank() == 1 and not restarted():
        step, seen = Trainer.step, []

        def counted(trainer, batch):
            seen.append(1)
            if len(seen) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(trainer, batch)

        Trainer.step = counted
    predictor = dh.train(
        read(graph),
        "demo/umls",
        out=out,
        checkpoint_minutes=0,
        progress=False,
        callback=callback,
        **settings,
        **options,
    )
    return {key: predictor.metrics[key] for key in ("valid", "test", "epochs", "best_epoch", "processes")}


WORK = {"losses": losses, "answers": answers, "table": table, "train": train}


def execute(folder, task, compiled=True, out=None, **options):
    """The result of a task; `out` is relative to the folder."""
    if out is not None:
        options["out"] = str(folder / out)
    with nullcontext() if compiled else patch.dict(os.environ, DIHEDRAL_COMPILED="0"):
        return WORK[task](**options)


def main():
    plan = Path(sys.argv[1])
    tasks, together = json.loads(plan.read_text())
    results = []
    with joined(torch.device("cpu")) if together else nullcontext():  # else each run joins a process group of its own
        for task in tasks:
            results.append(execute(plan.parent, **task))
            if rank() == 0:
                plan.with_suffix(".out").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
