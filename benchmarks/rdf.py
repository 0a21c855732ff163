"""Time to read a large RDF file: `python -m benchmarks.rdf [--triples 1000000]`.

The file is generated with 100,000 entities and 100 relations; IRIs are as long as those of DBpedia, and one triple in
twenty has a literal.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, save, seconds
from dihedral.graph import load_graph

ENTITIES, RELATIONS, LITERALS = 100_000, 100, 20


def generate(path: Path, triples: int, seed: int = 0) -> None:
    """Write an N-Triples file whose entities and relations are as skewed as in real graphs."""
    rng = np.random.default_rng(seed)

    def skewed(size: int) -> list[int]:
        weights = 1 / np.arange(1, size + 1) ** 0.7
        return rng.choice(size, size=triples, p=weights / weights.sum()).tolist()

    entities = [f"<http://dbpedia.org/resource/Some_Article_About_Number_{i}>" for i in range(ENTITIES)]
    relations = [f"<http://dbpedia.org/ontology/someProperty{i}>" for i in range(RELATIONS)]
    with path.open("w", encoding="utf-8") as out:
        for i, (head, relation, tail) in enumerate(
            zip(skewed(ENTITIES), skewed(RELATIONS), skewed(ENTITIES), strict=True)
        ):
            last = f'"a label of number {tail}"@en' if i % LITERALS == 0 else entities[tail]
            out.write(f"{entities[head]} {relations[relation]} {last} .\n")


def measure(triples: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generated.nt"
        generate(path, triples)
        graph = load_graph(path)
        took = seconds(lambda: load_graph(path), repeats=repeats, warmup=0)
        return {
            "triples": triples,
            "megabytes": round(path.stat().st_size / 1e6, 1),
            "graph": repr(graph),
            "notes": list(graph.notes),
            "seconds": round(took, 2),
            "triples_per_second": round(triples / took),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triples", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    row = measure(options.triples, options.repeats)
    print(row)
    save("rdf", row, options.out)


if __name__ == "__main__":
    main()
