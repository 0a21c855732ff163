"""`dihedral demo`: generate the FAMILY graph, train a model, and show its predictions, algebra and a figure."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Seed
from dihedral.cli.output import metric_rows, print_metrics, print_table, say


def command(
    out: Annotated[Path, typer.Option(help="The folder for the model and the figure.")] = Path("out/demo"),
    seed: Seed = 0,
) -> None:
    """Generate the FAMILY graph, train D4-Gumbel, and show what the model learned.

    Example: dihedral demo --out out/demo
    """
    started = time.perf_counter()
    graph = dh.make_family(seed=seed)
    say(f"1. Synthetic graph: {graph!r}")
    say("2. Training D4-Gumbel: each relation becomes 200 elements of D4")
    # the extra negatives (t, r, h) keep parent and child from becoming symmetric
    predictor = dh.train(graph, "demo/family", seed=seed, out=out, overwrite=True, skew_probability=0.5)
    print_metrics("3. Test metrics, ranking against all people", metric_rows(predictor.metrics["test"]))
    algebra = dh.algebra(predictor)
    text = "4. Inverses: weighted share of identity components in the product"
    pairs = [[" · ".join(rule.body), rule.share] for rule in algebra.inverse_pairs(5)]
    print_table(f"\n{text} (chance level {1 / (2 * algebra.monoid.K):.3f})", ["pair", "share"], pairs)
    text = "5. Compositions: weighted share of components in which the product, or the swapped one, equals the relation"
    rows = []
    for rule in [rule for rule in algebra.compositions(60) if len({*rule.body, rule.head}) == 3][:6]:
        first, second = (algebra[name] for name in rule.body)
        rows.append([str(rule), rule.share, (second @ first).agreement(algebra[rule.head])])
    print_table(f"\n{text}", ["product", "share", "swapped"], rows)
    say("\n6. Predictions: the top three answers with their scores; 'held out' marks the test fact")
    for head, relation, tail in list(graph.labels(graph.test))[:3]:
        best = predictor.predict(head=head, relation=relation, top=3)
        answers = ", ".join(f"{p.tail} ({p.score:.1f}{', held out' if p.tail == tail else ''})" for p in best)
        say(f"   ({head}, {relation}, ?)  {answers}")
    say(f"\n   model: {out}")
    try:
        from dihedral.figures.relations import draw_relations
    except ModuleNotFoundError:
        say("   (no figure: pip install 'dihedral[plots]')")
    else:
        figure = out / "relations.png"
        draw_relations(algebra, figure, title="FAMILY: what D4-Gumbel learned")
        say(f"   figure: {figure}")
    say(f"   finished in {time.perf_counter() - started:.0f} s")
