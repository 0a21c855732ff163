"""Values reported in Tables 3 and 4 of the paper: filtered Hits@1, Hits@3, Hits@10 and MRR, in percent."""

from __future__ import annotations

import tomllib
from importlib import resources
from math import isnan

_FILE = resources.files(__package__) / "reported.toml"
REPORTED: dict[str, dict[str, list[float | None]]] = {
    graph: {model: [None if isnan(value) else value for value in values] for model, values in rows.items()}
    for graph, rows in tomllib.loads(_FILE.read_text("utf-8")).items()
}
TABLES: dict[str, tuple[str, ...]] = {"table3": ("WN18", "FB15k"), "table4": ("WN18RR", "FB15k-237", "YAGO3-10")}

NAMES = {  # our model names -> the paper's names, where it has one
    "dihedral-ste": "D4-STE",
    "dihedral-gumbel": "D4-Gumbel",
    "dihedral-projection": "D4 by projection",
    "distmult": "DistMult",
    "complex": "ComplEx",
    "analogy": "ANALOGY",
    "simple": "SimplE",
    "hole": "HolE",
    "rescal": "RESCAL",
    "transe": "TransE",
}
BASELINES = tuple(name for name in NAMES if not name.startswith("dihedral"))
