"""Values reported in Tables 3 and 4 of the paper: filtered Hits@1, Hits@3, Hits@10 and MRR, in percent."""

from __future__ import annotations

Row = tuple[float | None, float | None, float | None, float]

REPORTED: dict[str, dict[str, Row]] = {
    "WN18": {
        "TransE": (8.9, 82.3, 93.4, 45.4),
        "DistMult": (72.8, 91.4, 93.6, 82.2),
        "ComplEx": (93.6, 94.5, 94.7, 94.1),
        "HolE": (93.0, 94.5, 94.7, 93.8),
        "ANALOGY": (93.9, 94.4, 94.7, 94.2),
        "Single DistMult": (None, None, 94.6, 79.7),
        "SimplE": (93.9, 94.4, 94.7, 94.2),
        "R-GCN": (69.7, 92.9, 96.4, 81.9),
        "ConvE": (93.5, 94.6, 95.6, 94.3),
        "D4-STE": (94.2, 94.8, 95.2, 94.6),
        "D4-Gumbel": (94.2, 94.9, 95.4, 94.6),
    },
    "FB15k": {
        "TransE": (23.1, 47.2, 64.1, 22.1),
        "DistMult": (54.6, 73.3, 82.4, 65.4),
        "ComplEx": (59.9, 75.9, 84.0, 69.2),
        "HolE": (40.2, 61.3, 73.9, 52.4),
        "ANALOGY": (64.6, 78.5, 85.4, 72.5),
        "Single DistMult": (None, None, 89.3, 79.8),
        "SimplE": (66.0, 77.3, 83.8, 72.7),
        "R-GCN": (60.1, 76.0, 84.2, 69.6),
        "ConvE": (55.8, 72.3, 83.1, 65.7),
        "D4-STE": (64.1, 80.3, 87.7, 73.3),
        "D4-Gumbel": (64.8, 78.2, 86.4, 72.8),
    },
    "WN18RR": {
        "DistMult": (39.0, 44.0, 49.0, 43.0),
        "ComplEx": (41.0, 46.0, 51.0, 44.0),
        "ConvE": (40.0, 44.0, 52.0, 43.0),
        "MINERVA": (41.3, 45.6, 51.3, 44.8),
        "D4-STE": (45.2, 49.1, 53.6, 48.0),
        "D4-Gumbel": (44.2, 50.5, 55.7, 48.6),
    },
    "FB15k-237": {
        "DistMult": (15.5, 26.3, 41.9, 24.1),
        "ComplEx": (15.8, 27.5, 42.8, 24.7),
        "R-GCN": (15.1, 26.4, 41.7, 24.8),
        "ConvE": (23.7, 35.6, 50.1, 32.5),
        "MINERVA": (21.7, 32.9, 45.6, 29.3),
        "D4-STE": (23.0, 35.3, 50.2, 32.0),
        "D4-Gumbel": (20.4, 33.2, 49.6, 30.0),
    },
    "YAGO3-10": {
        "DistMult": (24.0, 38.0, 54.0, 34.0),
        "ComplEx": (26.0, 40.0, 55.0, 36.0),
        "ConvE": (35.0, 49.0, 62.0, 44.0),
        "D4-STE": (38.1, 52.3, 64.3, 47.2),
        "D4-Gumbel": (29.4, 43.6, 57.3, 38.8),
    },
}

TABLES: dict[str, tuple[str, ...]] = {"table3": ("WN18", "FB15k"), "table4": ("WN18RR", "FB15k-237", "YAGO3-10")}

NAMES = {  # our model names -> the paper's names
    "dihedral-ste": "D4-STE",
    "dihedral-gumbel": "D4-Gumbel",
    "distmult": "DistMult",
    "complex": "ComplEx",
    "analogy": "ANALOGY",
    "simple": "SimplE",
    "hole": "HolE",
    "rescal": "RESCAL",
    "transe": "TransE",
}
BASELINES = ("distmult", "complex", "analogy", "simple", "hole", "rescal", "transe")
