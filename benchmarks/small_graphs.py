"""Graphs of 1,000 to 300,000 triples to choose defaults on: small benchmarks, and parts of larger ones."""

from __future__ import annotations

import os
import re
import tarfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import dihedral as dh
from dihedral.graph import Graph
from dihedral.graph.triples import Triples

IN_PYKEEN = ("nations", "kinships")  # folders of PyKEEN's wheel
EMBEDDING = {"model": "dihedral-gumbel"}  # the setting that asks `choose_recipe` for an embedding
ONE_FILE = "dbpedia50"  # an archive of $DIHEDRAL_DATA with one file of triples, without splits


@dataclass(frozen=True)
class Part:
    """The triples among some neighbouring entities of a graph, in the graph's own splits."""

    source: str
    entities: int
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.source}-{self.entities}" + (f"-{self.seed}" if self.seed else "")

    def make(self) -> Graph:
        graph = dh.load_graph(self.source)
        chosen = snowball(graph, self.entities, self.seed)
        names = np.array(list(graph.entities), dtype=object), np.array(list(graph.relations), dtype=object)
        train = graph.train[chosen[graph.train[:, [0, 2]]].all(1)]
        seen = [np.zeros(len(each), dtype=bool) for each in names]
        seen[0][train[:, [0, 2]]] = True
        seen[1][train[:, 1]] = True
        parts = [train, *(triples[_known(triples, *seen)] for triples in (graph.valid, graph.test))]
        named = [np.stack([names[0][h], names[1][r], names[0][t]], axis=1) for h, r, t in (part.T for part in parts)]
        return Graph.from_names(*([tuple(row) for row in part] for part in named), name=self.name)


def snowball(graph: Graph, count: int, seed: int) -> np.ndarray:
    """A mask of about `count` entities: from a random one on, each adds up to five random neighbours."""
    generator = np.random.default_rng(seed)
    index = graph.train_index
    starts, ends = index.entity_starts.numpy(), index.ends.numpy()
    chosen = np.zeros(graph.num_entities, dtype=bool)
    queue: list[int] = []
    while chosen.sum() < count:
        if not queue:
            queue = [int(generator.integers(graph.num_entities))]
        here = queue.pop(0)
        chosen[here] = True
        around = np.unique(ends[starts[here] : starts[here + 1]])
        for each in generator.permutation(around)[:5].tolist():
            if not chosen[each]:
                chosen[each] = True
                queue.append(each)
    return chosen


def _known(triples: Triples, entities: np.ndarray, relations: np.ndarray) -> np.ndarray:
    return entities[triples[:, 0]] & entities[triples[:, 2]] & relations[triples[:, 1]]


PARTS = [
    Part("FB15k-237", 500), Part("FB15k-237", 2000), Part("FB15k-237", 5000), Part("FB15k", 1000), Part("FB15k", 4000),
    Part("WN18RR", 10_000), Part("WN18", 5000), Part("WN18", 20_000),
]  # fmt: skip
GRAPHS = ["nations", "umls", "family", "family-neural-lp", *(part.name for part in PARTS), "WN18RR", "FB15k-237"]

# not looked at while the defaults were chosen
FRESH = [Part("FB15k-237", 1000, 1), Part("FB15k-237", 3000, 2), Part("FB15k", 2000, 3), Part("WN18RR", 20_000, 4)]
FRESH_GRAPHS = ["kinships", *(part.name for part in FRESH), "WN18"]


def open_graph(name: str) -> Graph:
    """A benchmark, or a part of one by its name, such as WN18RR-4000-8."""
    part = re.fullmatch(r"(FB15k-237|FB15k|WN18RR|WN18)-(\d+)(?:-(\d+))?", name)
    if part and name != "FB15k-237":  # which is no part of FB15k
        return Part(part[1], int(part[2]), int(part[3] or 0)).make()
    if name in IN_PYKEEN:
        found = find_spec("pykeen")
        assert found is not None and found.origin is not None
        return dh.load_graph(Path(found.origin).parent / "datasets" / name).replace(name=name)
    if name == ONE_FILE:
        with tarfile.open(Path(os.environ["DIHEDRAL_DATA"]) / f"{name}.tar.xz") as archive, TemporaryDirectory() as to:
            archive.extractall(to, filter="data")
            return dh.load_graph(Path(to) / name / "triples.tsv").replace(name=name)
    return dh.load_graph(name)
