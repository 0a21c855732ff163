"""The engine of path models against the same model in plain operations, one run on the same batches.

`python -m benchmarks.path_engine WN18RR FB15k-237 --device cuda` times training steps (loss and gradients) of the
recipe paths/NAME: ours, with the scatter operations of PyTorch, and with PyTorch Geometric where it is installed. The
plain forms leave no fact out of the graph, which makes them faster, and are timed with fewer questions at a time where
their messages would not fit into memory. The results are times per question, of turns in which each form is timed once;
on a CPU they are seconds of CPU time, which other work on the machine changes little. With `--answers` it times the ten
best answers of one question, asked one after the other, and the filtered ranking of test; the parameters are not
trained, which changes no time.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dihedral as dh
from benchmarks.record import save, seconds
from dihedral.engine.path_engine import PathWeights
from dihedral.evaluation import Evaluator
from dihedral.graph import GraphIndex
from dihedral.learn.path_trainer import PathTrainer
from dihedral.objectives.recipe import load_recipe

MEMORY = {"cpu": 4 << 30, "cuda": 100 << 30}  # bytes for the messages of the plain forms
BANDWIDTH = 4.3e12  # bytes per second that one H200 reads and writes
RANKING_LIMIT = 60_000  # milliseconds of questions beyond which test is not ranked

Propagate = Callable[[Tensor], Tensor]


def scatter(index: GraphIndex) -> Propagate:
    """Sums of messages [edges, ...] by their targets, with `index_add`."""
    ends, size = index.ends.long(), index.num_entities
    return lambda messages: messages.new_zeros(size, *messages.shape[1:]).index_add(0, ends, messages)


def geometric(index: GraphIndex) -> Propagate:
    """The same with PyTorch Geometric."""
    from torch_geometric.utils import scatter as pyg_scatter

    ends, size = index.ends.long(), index.num_entities
    return lambda messages: pyg_scatter(messages.flatten(1), ends, 0, size, "sum").unflatten(1, messages.shape[1:])


def plain_loss(index: GraphIndex, weights: PathWeights, asked: Any, answers: Tensor, propagate: Propagate) -> Tensor:
    """The loss of a batch over all entities, with one message per edge and question."""
    size, heads = len(answers), asked.entities
    each, vectors = torch.arange(size, device=answers.device), weights.vectors.unflatten(1, (2, -1))
    sources, steps = index.sources, index.steps.long()
    fans = index.starts.diff()[index.rows].float()
    degrees = 1 + index.degrees.float()
    first = torch.zeros(index.num_entities, *vectors.shape, device=answers.device)
    state = first = first.index_put((heads, each), vectors)
    a, b, c, d = weights.blocks[steps].unbind(1)  # [edges, L]
    for t in range(weights.shared.shape[1]):
        keep, restart, degree, fan = weights.shared[:, t]
        gate = weights.gates[asked.which, t].transpose(0, 1)[steps] * (fans[:, None] ** -fan)[:, None]  # [edges, B, L]
        x, y = (state[sources] * gate[:, :, None]).unbind(2)
        sent = torch.stack([a[:, None] * x + c[:, None] * y, b[:, None] * x + d[:, None] * y], 2)
        state = keep * state + restart * first + (degrees[:, None] ** -degree)[:, None, None] * propagate(sent)
        if len(weights.mixing):
            lengths = state.square().sum(2, keepdim=True).add(1e-12).sqrt()
            seen = torch.cat([state / lengths**0.75, lengths**0.25], 2).flatten(2)
            z = weights.rescaling[asked.which, t] + seen @ weights.mixing[t]
            state = state * (1 + z / (1 + z.abs()))[:, :, None]
    x, y = state.unbind(2)
    v, w, o = weights.reading.unbind(1)
    length = (x * x + y * y + 1e-12).sqrt()
    scores = ((x * v + y * w + length * o) / (1 + length).sqrt()).sum(-1) + weights.bias
    return torch.nn.functional.cross_entropy(scores.T, answers)


def duration(work: Callable[[], None], device: str) -> float:
    """Seconds of one call: those that a GPU takes, or those of CPU time."""
    if device == "cuda":
        return seconds(work, repeats=1, warmup=0)
    started = process_time()
    work()
    return process_time() - started


def measure(name: str, recipe: str, device: str, repeats: int) -> dict[str, Any]:
    """Seconds per question of each form."""
    trainer = PathTrainer(dh.load_graph(name), load_recipe(recipe), device=device)
    index, model = trainer.path_scorer.index, trainer.model
    edges, width = len(index.ends), trainer.recipe.dimension
    generator = torch.Generator().manual_seed(0)

    def batch(size: int) -> Tensor:
        return trainer.triples[torch.randperm(len(trainer.triples), generator=generator)[: size // 2].to(device)]

    def ours() -> None:
        trainer.loss(batch(2 * trainer.recipe.batch_size)).backward()

    bytes_per_question = 4 * edges * width * trainer.recipe.steps * 5  # five tensors of messages are kept
    size = max(2, min(2 * trainer.recipe.batch_size, MEMORY[device] // bytes_per_question // 2 * 2))

    def plain(propagate: Propagate) -> None:
        head, relation, tail = batch(size).unbind(1)
        steps = torch.cat([relation, relation + index.num_relations])
        asked, weights = model.weights(torch.cat([head, tail]), steps, model.relations.operators())
        plain_loss(index, weights, asked, torch.cat([tail, head]), propagate).backward()

    forms = {"scatter": scatter} | ({"geometric": geometric} if find_spec("torch_geometric") else {})
    works = {"ours": ours} | {form: partial(plain, make(index)) for form, make in forms.items()}
    times: dict[str, list[float]] = {form: [] for form in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        for form, work in works.items():
            times[form].append(duration(work, device))
    sizes = dict.fromkeys(works, size) | {"ours": 2 * trainer.recipe.batch_size}
    found = {form: median(each) / sizes[form] for form, each in times.items()}
    row: dict[str, Any] = {"graph": name, "recipe": recipe, "device": device, "questions_of_plain_forms": size}
    row |= {"seconds_per_question": found, "load_average": round(os.getloadavg()[0], 1)}
    row["times_faster"] = {form: round(found[form] / found["ours"], 1) for form in forms}
    if device == "cuda":
        limit = edges * width * 2 * trainer.recipe.steps * 3 / BANDWIDTH  # two bytes per number, three passes
        row |= {"traffic_limit": limit, "ours_by_limit": round(found["ours"] / limit, 2)}
        row["gigabytes"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return row


def measure_answers(name: str, recipe: str, device: str, count: int = 200) -> dict[str, Any]:
    """Milliseconds of one question, and seconds of the filtered ranking of test."""
    graph = dh.load_graph(name)
    scorer = PathTrainer(graph, load_recipe(recipe), device=device).result().scorer
    drawn = graph.test[np.random.default_rng(0).permutation(len(graph.test))[:count]]
    questions = torch.from_numpy(drawn.astype(np.int64)).to(device)
    times = [seconds(lambda one=one: scorer.top(one[:1], one[1:2], 10), repeats=1) for one in questions]
    shares = {"median": 0.5, "p95": 0.95}
    found = {key: float(np.quantile(times, share)) * 1000 for key, share in shares.items()}
    evaluator = Evaluator(graph, "test", device=device)
    row = {"graph": name, "recipe": recipe, "device": device, "milliseconds_of_one_question": found}
    if len(graph.test) * found["median"] < RANKING_LIMIT:
        row |= {
            "ranked_questions": 2 * len(graph.test),
            "seconds_of_ranking": seconds(lambda: evaluator(scorer), repeats=1),
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.path_engine", description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--recipe", help="by default paths/NAME")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--answers", action="store_true", help="time answers instead of training steps")
    options = parser.parse_args()
    rows = []
    for name in options.names:
        recipe = options.recipe or f"paths/{name.lower()}"
        if options.answers:
            rows.append(measure_answers(name, recipe, options.device))
        else:
            rows.append(measure(name, recipe, options.device, options.repeats))
        print(rows[-1], flush=True)
    save(f"path-{'answers' if options.answers else 'engine'}-{options.device}", {"rows": rows})


if __name__ == "__main__":
    main()
