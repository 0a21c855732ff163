"""`dihedral demo`: generate the FAMILY graph, train a model, and show its predictions, algebra and a figure."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.options import Seed
from dihedral.cli.output import metric_rows, print_metrics, print_table, say, shown_kappa
from dihedral.graph.patterns import Reversals, find_reversals
from dihedral.interpretation import Algebra


def demo_command(
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
    say("\n   Shares of components are shown as kappa: 0 is the chance level, 1 is all; blank is not significant.")
    _print_inverses(algebra, find_reversals(graph.train_index))
    _print_compositions(algebra)
    say("\n6. Predictions: the top three answers with their probabilities; 'held out' marks the test fact")
    for head, relation, tail in list(graph.names_of(graph.test))[:3]:
        best = predictor.predict(head=head, relation=relation, top=3)
        answers = ", ".join(f"{p.tail} ({_sure(p)}{', held out' if p.tail == tail else ''})" for p in best)
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


def _sure(answer: dh.Prediction) -> str:
    return f"score {answer.score:.1f}" if answer.probability is None else f"{answer.probability:.0%}"


def _print_inverses(algebra: Algebra, counted: Reversals) -> None:
    rows = []
    for rule in algebra.inverse_pairs(5):
        first, second = map(algebra.names.id, rule.body)
        rows.append([" · ".join(rule.body), shown_kappa(rule.share), float(counted.confidence[first, second])])
    print_table("4. Inverses: products that are the identity", ["pair", "kappa", "confidence in the graph"], rows)


def _print_compositions(algebra: Algebra) -> None:
    rules = [rule for rule in algebra.compositions(60) if len({*rule.body, rule.head}) == 3][:6]
    rows = []
    for rule in rules:
        first, second = (algebra[name] for name in rule.body)
        swapped = (second @ first).agreement(algebra[rule.head]).among(rule.share.comparisons)
        rows.append([str(rule), shown_kappa(rule.share), shown_kappa(swapped)])
    title = "\n5. Compositions: products, and swapped products, that equal a relation"
    print_table(title, ["product", "kappa", "swapped"], rows)
