"""`dihedral data`: benchmarks, their statistics, downloads, and the FAMILY generator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dihedral.cli.output import Columns, Json, print_json, print_table, read_data, say
from dihedral.errors import DihedralError
from dihedral.evaluation.metrics import relation_categories
from dihedral.graph import Graph, make_family
from dihedral.graph.benchmarks import BENCHMARKS, find_benchmark, locate
from dihedral.graph.readers import write_folder

app = typer.Typer(help="Benchmarks, statistics of a graph, and the FAMILY generator.", no_args_is_help=True)


@app.command("list")
def list_command(json: Json = False) -> None:
    """The named benchmarks and where they are on this machine.

    Example: dihedral data list
    """
    rows = []
    for benchmark in BENCHMARKS.values():
        entities, relations, train, valid, test = benchmark.size
        path = locate(benchmark)
        rows.append(
            {
                "name": benchmark.name,
                "entities": entities,
                "relations": relations,
                "train": train,
                "valid": valid,
                "test": test,
                "path": str(path) if path else None,
            }
        )
    if json:
        print_json(rows)
        return
    header = ["name", "entities", "relations", "train", "valid", "test", "here"]
    print_table("", header, [[*list(row.values())[:-1], "yes" if row["path"] else "no"] for row in rows])


@app.command("info")
def info_command(
    name: Annotated[
        str | None, typer.Argument(help="A benchmark, folder, archive or file (text, Parquet, RDF).")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All benchmarks that are here: Table 2 of the paper.")] = False,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Statistics of a graph.

    Example: dihedral data info WN18RR
    """
    if every == (name is not None):
        raise DihedralError("give either a graph or --all")
    if every:
        rows = [_statistics(read_data(b.name)) for b in BENCHMARKS.values() if locate(b)]
        missing = [b.name for b in BENCHMARKS.values() if not locate(b)]
        if json:
            print_json(rows)
            return
        print_table("", ["dataset", "|E|", "|R|", "train", "valid", "test"], [list(row.values())[:6] for row in rows])
        if missing:
            say(f"not here: {', '.join(missing)} (`dihedral data fetch NAME`)")
        return
    assert name is not None
    row = _statistics(read_data(name, columns))
    if json:
        print_json(row)
        return
    print_table("", ["", ""], [[key, value] for key, value in row.items() if not isinstance(value, dict)])
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
        "test triples with an entity that training never saw": unseen,
        "categories": {name: categories.count(name) for name in ("1-1", "1-N", "N-1", "N-N")},
        "fingerprint": graph.fingerprint,
    }


@app.command("fetch")
def fetch_command(name: Annotated[str, typer.Argument(help="A benchmark.")]) -> None:
    """Download a benchmark into the cache, or say where it is already.

    Example: dihedral data fetch WN18RR
    """
    benchmark = find_benchmark(name)
    graph = read_data(benchmark.name)
    say(f"{graph!r} is in {locate(benchmark)}")


@app.command("make-family")
def make_family_command(
    out: Annotated[Path, typer.Argument(help="The folder to write train.txt, valid.txt and test.txt to.")],
    people: Annotated[int, typer.Option(help="How many people, a multiple of 4.")] = 1200,
    parents: Annotated[int, typer.Option(help="Parents a person is linked to: 1 or 2.")] = 2,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Generate the synthetic FAMILY graph of the paper's case studies.

    Example: dihedral data make-family family --people 1200 --parents 1
    """
    graph = make_family(people, parents=parents, seed=seed)
    write_folder(graph, out)
    say(f"{graph!r} written to {out}")
