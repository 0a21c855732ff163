"""`dihedral demo`: the whole way on the FAMILY graph, from nothing to predictions and a figure."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import dihedral as dh
from dihedral.cli.output import metric_rows, print_metrics, print_table, say


def command(
    out: Annotated[Path, typer.Option(help="Where the model and the figure go.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Generate FAMILY, train D4-Gumbel, and show what it learned.

    Example: dihedral demo --out out/demo
    """
    started = time.perf_counter()
    graph = dh.make_family(seed=seed)
    say(f"1. A synthetic family: {graph!r}")
    say("2. Training D4-Gumbel: every relation becomes 200 elements of D4")
    # the extra negatives (t, r, h) keep parent and child from being taken for symmetric relations
    predictor = dh.train(graph, "demo/family", seed=seed, out=out, overwrite=True, skew_probability=0.5)
    print_metrics("3. Test triples, ranked among all people", metric_rows(predictor.metrics["test"]))
    algebra = dh.algebra(predictor)
    chance = 1 / len(algebra.group)
    print_table(
        f"\n4. Inverses: weighted share of identity components in the product (chance {chance:.3f})",
        ["pair", "share"],
        [[" · ".join(rule.body), rule.share] for rule in algebra.inverse_pairs(5)],
    )
    rules = [rule for rule in algebra.compositions(60) if len({*rule.body, rule.head}) == 3]
    print_table(
        "\n5. Compositions: weighted share of components in which the product is the relation, and in the other order",
        ["product", "share", "swapped"],
        [
            [str(rule), rule.share, (algebra[rule.body[1]] @ algebra[rule.body[0]]).agreement(algebra[rule.head])]
            for rule in rules[:6]
        ],
    )
    say("\n6. Questions: the best three answers with their scores; 'held back' is the test fact")
    for head, relation, tail in list(graph.labels(graph.test))[:3]:
        best = predictor.predict(head=head, relation=relation, top=3)
        answers = ", ".join(f"{p.tail} ({p.score:.1f}{', held back' if p.tail == tail else ''})" for p in best)
        say(f"   ({head}, {relation}, ?)  {answers}")
    say(f"\n   the model is in {out}")
    try:
        from dihedral.figures.relations import draw_relations
    except ModuleNotFoundError:
        say("   (no figure: pip install 'dihedral[plots]')")
    else:
        figure = out / "relations.png"
        draw_relations(algebra, figure, title="FAMILY: what D4-Gumbel learned")
        say(f"   the figure is {figure}")
    say(f"   done in {time.perf_counter() - started:.0f} s")
