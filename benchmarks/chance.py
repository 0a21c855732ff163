"""What shares of components say before and after the comparison with chance: `python -m benchmarks.chance MODEL ...`.

A relation is symmetric in the graph if at least half of its pairs are held in both directions. `shown` counts what the
explorer shows: significant, and with at least one pair for it in the training facts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import dihedral as dh
from benchmarks.record import RESULTS, save
from dihedral.graph.patterns import find_reversals


def measure(folder: Path) -> dict[str, Any]:
    predictor = dh.load(folder)
    a, counted = dh.algebra(predictor), find_reversals(predictor.graph.train_index)
    count = len(a)
    mutual, truth = counted.support.diagonal(), counted.confidence.diagonal() >= 0.5
    symmetry = [row.symmetry().among(count) for row in a]
    shown = np.array([share.significant for share in symmetry]) & (mutual > 0)
    shares = np.array([[float((~row).agreement(other)) for other in a] for row in a])
    best = a.nearest_inverses(range(count), 1)[:, 0]
    pairs = [(~row).agreement(a[a.names[other]]).among(count * (count + 1) // 2)
             for row, other in zip(a, best.tolist(), strict=True)]  # fmt: skip
    inverses = np.array([share.significant for share in pairs]) & (counted.support[np.arange(count), best] > 0)
    return {
        "graph": predictor.graph.name, "recipe": predictor.recipe.to_dict(), "relations": count,
        "median_symmetry": float(np.median(symmetry)),
        "own_inverse_by_share": int((shares.argmax(axis=1) == np.arange(count)).sum()),
        "symmetric_in_graph": int(truth.sum()),
        "symmetric_shown": int(shown.sum()),
        "symmetric_shown_and_in_graph": int((shown & truth).sum()),
        "significant_without_a_mutual_pair": int(sum(share.significant for share in symmetry) - shown.sum()),
        "inverses_shown": int(inverses.sum()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for folder in options.models:
        rows.append(measure(folder))
        print({key: value for key, value in rows[-1].items() if key != "recipe"}, flush=True)
    save("chance", {"rows": rows}, options.out)


if __name__ == "__main__":
    main()
