"""Time and memory of large graphs on one machine: `python -m benchmarks.big_graph [--triples 20600000]`.

The benchmark reads a graph, opens a model and asks a first query. The graph is generated with the size and skew of
Wikidata5M: 4.6 million entities, 822 relations, 20.6 million triples. Every measurement runs in a separate process;
memory is measured relative to a process that has only imported the library.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from benchmarks.record import RESULTS, save
from dihedral.graph.triples import SPLITS, Graph
from dihedral.graph.vocabulary import Vocabulary

ENTITIES, RELATIONS, TRIPLES, DIMENSION = 4_600_000, 822, 20_600_000, 256
HELD_OUT = 4_000  # one triple in 4,000 is in valid, and one in test
IMPORT = """
import time, torch
started = time.perf_counter()
import dihedral
print(time.perf_counter() - started)
"""


def generate(entities: int, triples: int, seed: int = 0) -> tuple[NDArray[np.int32], pa.Array, pa.Array]:
    """Return triples [n, 3] in which every entity is a head, and the names of entities and relations."""
    rng = np.random.default_rng(seed)

    def skewed(size: int, count: int, power: float) -> NDArray[np.int64]:
        weights = np.cumsum(1 / np.arange(1, size + 1) ** power)
        return np.minimum(np.searchsorted(weights, rng.random(count) * weights[-1]), size - 1)

    heads = np.append(np.arange(entities), skewed(entities, triples - entities, 0.3))
    rng.shuffle(heads)
    tails = rng.permutation(entities)[skewed(entities, triples, 0.8)]
    rows = np.stack([heads, skewed(RELATIONS, triples, 1.0), tails], axis=1).astype(np.int32)
    numbers = rng.permutation(6 * entities)[:entities]
    return rows, pa.array([f"Q{i}" for i in numbers.tolist()]), pa.array([f"P{i}" for i in range(RELATIONS)])


def splits(triples: int) -> list[int]:
    """Return the start of train, valid and test, and the end of test."""
    held_out = triples // HELD_OUT + 1
    return [0, triples - 2 * held_out, triples - held_out, triples]


def write_text(folder: Path, rows: NDArray[np.int32], entities: pa.Array, relations: pa.Array) -> None:
    """Write train.tsv, valid.tsv and test.tsv to a folder, and all triples to a file next to it."""
    folder.mkdir()
    columns = [entities.take(rows[:, 0]), relations.take(rows[:, 1]), entities.take(rows[:, 2])]
    table = pa.table(columns, ["head", "relation", "tail"])
    options = pacsv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    for name, (start, end) in zip(SPLITS, pairwise(splits(len(rows))), strict=True):
        pacsv.write_csv(table.slice(start, end - start), folder / f"{name}.tsv", options)
    pacsv.write_csv(table, folder.with_suffix(".tsv"), options)


def write_model(folder: Path, entities: int, triples: int) -> str:
    """Save an untrained model of a generated graph and return the name of an entity."""
    from dihedral import Predictor, TrainedModel
    from dihedral.models import build_model

    rows, names, relations = generate(entities, triples)
    parts = np.split(rows, splits(len(rows))[1:3])
    graph = Graph(Vocabulary(names), Vocabulary(relations, "relation"), *parts, name="generated")
    Predictor(TrainedModel(build_model("dihedral-argmax", entities, RELATIONS, dimension=DIMENSION), graph)).save(
        folder
    )
    return graph.entities[int(rows[0, 0])]


# --- in a separate process ------------------------------------------------------------------------


def megabytes(what: str) -> float:
    """Memory of this process: VmHWM is the peak, VmRSS the current size, RssAnon the part without files."""
    found = re.search(rf"{what}:(.*)kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def measure_reading(path: str) -> dict[str, Any]:
    from dihedral.graph import load_graph

    before = megabytes("VmRSS")
    wall, cpu = perf_counter(), process_time()
    graph = load_graph(path)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    arrays = [graph.split(split) for split in SPLITS] + [graph.entities.array, graph.relations.array]
    final = sum(array.nbytes for array in arrays) / 2**20
    peak = megabytes("VmHWM") - before
    return {
        "graph": repr(graph),
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "final_mb": round(final, 1),
        "peak_mb": round(peak, 1),
        "peak_to_final": round(peak / final, 2),
    }


def measure_opening(path: str, entity: str) -> dict[str, Any]:
    import dihedral as dh

    before = megabytes("VmRSS"), megabytes("RssAnon")
    started = perf_counter()
    predictor = dh.load(path)
    opened = perf_counter()
    resident = megabytes("VmRSS") - before[0], megabytes("RssAnon") - before[1]
    predictor.graph.entities.id(entity)
    found = perf_counter()
    predictor.predict(head=entity, relation="P3")
    first = perf_counter()
    predictor.predict(head=entity, relation="P4")
    second = perf_counter()
    predictor.known  # noqa: B018
    indexed = perf_counter()
    return {
        "seconds_to_open": round(opened - started, 3),
        "resident_mb": round(resident[0], 1),
        "resident_outside_files_mb": round(resident[1], 1),
        "seconds_to_find_a_name": round(found - opened, 5),
        "seconds_to_first_prediction": round(first - found, 3),
        "seconds_to_next_prediction": round(second - first, 3),
        "seconds_to_index_known_answers": round(indexed - second, 2),
    }


def in_process(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.big_graph", "--child", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(arguments, row, flush=True)
    return row


def measure(entities: int, triples: int) -> dict[str, Any]:
    imports = [float(subprocess.check_output([sys.executable, "-c", IMPORT])) for _ in range(5)]
    rows: dict[str, Any] = {"seconds_to_import_beyond_torch": round(median(imports), 3), "reading": [], "opening": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_text(folder / "text", *generate(entities, triples))
        for form, path in (("folder of train, valid, test", "text"), ("one file, split", "text.tsv")):
            rows["reading"].append({"from": form, **in_process("read", str(folder / path))})
    for divisor in (100, 10, 1):
        with tempfile.TemporaryDirectory() as place:
            model = Path(place) / "model"
            name = write_model(model, entities // divisor, triples // divisor)
            size = sum(file.stat().st_size for file in model.iterdir())
            about = {"entities": entities // divisor, "triples": triples // divisor, "dimension": DIMENSION}
            opened = in_process("open", str(model), name)
            rows["opening"].append({**about, "folder_mb": round(size / 2**20), **opened})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=ENTITIES)
    parser.add_argument("--triples", type=int, default=TRIPLES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, *arguments = options.child
        print(json.dumps({"read": measure_reading, "open": measure_opening}[what](*arguments)))
        return
    save("big-graph", measure(options.entities, options.triples), options.out)


if __name__ == "__main__":
    main()
