"""List, describe and download benchmarks, and generate the FAMILY graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dihedral.cli import options as opt
from dihedral.cli.output import print_found, print_json, print_table, read_data, say
from dihedral.evaluation.metrics import relation_categories
from dihedral.graph import Graph, make_family
from dihedral.graph.benchmarks import BENCHMARKS, find_benchmark, locate
from dihedral.graph.readers import write_folder

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.command("list")
def list_command(wide: opt.Wide = False, json: opt.Json = False) -> None:
    """List the named benchmarks and whether they are on this machine.

    Example: dihedral data list
    """
    header = ["name", "entities", "relations", "train", "valid", "test"]
    rows = [[benchmark.name, *benchmark.size, locate(benchmark)] for benchmark in BENCHMARKS.values()]
    content = [dict(zip(header, row, strict=False)) | {"path": str(row[-1]) if row[-1] else None} for row in rows]
    print_found(json, content, [*header, "available"], [[*row, "yes" if path else "no"] for *row, path in rows])


@app.command("info")
def info_command(
    data: opt.Data, columns: opt.Columns = None, merge_similar: opt.MergeSimilar = False,
    skip_blank: opt.SkipBlank = False, wide: opt.Wide = False, json: opt.Json = False,
) -> None:  # fmt: skip
    """Show statistics of a graph.

    Example: dihedral data info WN18RR
    """
    row = _statistics(read_data(data, columns, merge_similar=merge_similar, skip_blank=skip_blank))
    if json:
        print_json(row)
        return
    print_table("", ["", ""], [[key, value] for key, value in row.items() if not isinstance(value, (dict, list))])
    print_table("relations by category", ["", ""], list(row["categories"].items()))


def _statistics(graph: Graph) -> dict[str, Any]:
    categories = relation_categories(graph).tolist()
    trained = set(graph.train[:, [0, 2]].ravel().tolist())
    unseen = sum(1 for head, _, tail in graph.test.tolist() if head not in trained or tail not in trained)
    return {
        "name": graph.name,
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "train": len(graph.train),
        "valid": len(graph.valid),
        "test": len(graph.test),
        "test triples with an unseen entity": unseen,
        "categories": {name: categories.count(name) for name in ("1-1", "1-N", "N-1", "N-N")},
        "fingerprint": graph.fingerprint,
        "notes": list(graph.notes),
    }


@app.command("fetch")
def fetch_command(name: Annotated[str, typer.Argument(help="The name of a benchmark.")]) -> None:
    """Download a benchmark into the cache unless it is already on this machine.

    Example: dihedral data fetch WN18RR
    """
    benchmark = find_benchmark(name)
    graph = read_data(benchmark.name)
    say(f"{graph!r} is in {locate(benchmark)}")


@app.command("make-family")
def make_family_command(
    out: Annotated[Path, typer.Argument(help="The folder for train.txt, valid.txt and test.txt.")],
    people: Annotated[int, typer.Option(help="Number of people, a multiple of 4.")] = 1200,
    parents: Annotated[int, typer.Option(help="Parents per person: 1 or 2.")] = 2,
    seed: opt.Seed = 0,
) -> None:
    """Generate the synthetic FAMILY graph of the paper's case studies.

    Example: dihedral data make-family family --people 1200 --parents 1
    """
    graph = make_family(people, parents=parents, seed=seed)
    write_folder(graph, out)
    say(f"wrote {graph!r} to {out}")
