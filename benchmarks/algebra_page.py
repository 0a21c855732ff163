"""Write docs/algebra.md with real output: `python -m benchmarks.algebra_page FB15K237_MODEL [--out docs]`.

The script trains a FAMILY model. FB15K237_MODEL is a model folder trained with `algebra/fb15k-237-d4-graded`. The
tables come from results/rules-*.json and results/faithfulness-*.json.
"""

from __future__ import annotations

import argparse
import code
import contextlib
import io
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import dihedral as dh
from benchmarks.report import read, source
from dihedral.figures.explanation import draw_explanation
from dihedral.interpretation.explanations import Explanation
from dihedral.predict.predictor import Predictor
from paper.tables import markdown

DOCS = Path(__file__).resolve().parent.parent / "docs"
OUT = DOCS.parent / "out"
GRAPHS = ("FB15k-237", "umls", "family-neural-lp", "FB15k", "WN18")
AMIE_SECONDS = {"FB15k-237": 156, "WN18": 37, "family-neural-lp": 14}  # quoted: AMIE milestone release, 2 cores
BELIEF = "[belief score](#belief-score)"


class Session:
    """A Python session that shows its lines together with their output."""

    def __init__(self, **names: Any) -> None:
        self.console = code.InteractiveInterpreter({"dh": dh, **names})

    def show(self, *lines: str) -> str:
        shown = []
        for line in lines:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                self.console.runsource(line)
            shown += [f">>> {line}", *printed.getvalue().splitlines()]
        return "```pycon\n" + "\n".join(shown) + "\n```\n"


def shell(model: Path, name: str, *arguments: str) -> str:
    """Run a command and show it together with its output; `name` replaces the path of the model folder."""
    from dihedral.cli.main import app

    os.environ["COLUMNS"] = "120"
    command, *rest = arguments
    found = CliRunner().invoke(app, [command, str(model), *rest])
    if found.exit_code:
        raise SystemExit(found.output)
    words = " ".join(word if word.isalnum() or word[0] == "-" else f"'{word}'" if " " in word else word
                     for word in rest)  # fmt: skip
    lines = [line.rstrip() for line in found.stdout.strip().splitlines()]
    return f"```console\n$ dihedral {command} {name} {words}\n" + "\n".join(lines) + "\n```\n"


def well_explained(predictor: Predictor) -> Explanation:
    """Return the first test triple, in random order, that ranks first on both sides and has at least two paths."""
    graph = predictor.graph
    for number in np.random.default_rng(0).permutation(len(graph.test)):
        found = dh.explain(predictor, *next(graph.names_of(graph.test[[number]])), top=4)
        if max(found.ranks.values()) < 2 and len(found.paths) >= 2 and found.paths[0].support > 0.6:
            return found
    raise SystemExit("no test triple has an explanation with two paths")


def explanation_seconds(predictor: Predictor, found: Explanation) -> float:
    started = time.perf_counter()
    dh.explain(predictor, *found.triple)
    return time.perf_counter() - started


SHARES = f"""
A share weights each component by its contribution to the scores of the relations' facts. [Its chance
level](concepts/algebra.md#shares-against-chance) says how much of it means nothing: kappa is 0 at the chance level and
1 if all components agree. Most components contribute little to any one relation, so the shares of compositions are low
even if the rule holds. Therefore `dihedral rules` ranks rules by their {BELIEF}.

### Belief score

The belief score of a rule r₁ · r₂ ⇒ r₃ measures how well a model agrees with the rule:

1. Follow the body from up to 64 heads of r₁ to the 4 most probable tails each.
2. For each pair (h, t) reached, compare the score of (h, r₃, t) with the mean score of the facts of r₃:
   min(1, exp(score - mean)). A pair that scores at least as high as the mean counts fully; other pairs count less.
3. Average over the pairs, weighted by the probability of reaching them.
4. Do the same from the tails backwards, and take the geometric mean of both directions.

The belief score ranks the rules of one model. It is not a probability, and it stays below 1 even for a perfect rule.
In the output it is the column `score`. The column `kappa` compares the elements of body and head with chance and is
blank where it is not significant. Support, head coverage and confidence are exact counts in the graph.

"""


def family_part(images: Path) -> str:
    predictor = dh.train(dh.load_graph("family"), "algebra/family-d4-gumbel", progress=False)
    folder = OUT / "family"
    predictor.save(folder, overwrite=True)
    session = Session(a=dh.algebra(predictor), predictor=predictor)
    found = well_explained(predictor)
    draw_explanation(found, images / "family-explanation.png")
    return (
        "## FAMILY: a graph with known rules\n\n"
        "`dihedral data make-family` generates a population of couples with parents, siblings and in-laws. Its rules\n"
        "are known: `child` is the inverse of `parent`, `spouse` is its own inverse, and the parent of a spouse is a\n"
        "parent-in-law.\n\n"
        "```python\nimport dihedral as dh\n\n"
        'predictor = dh.train(dh.load_graph("family"), "algebra/family-d4-gumbel")\npredictor.save("out/family")\n'
        "a = dh.algebra(predictor)\n```\n\n"
        + session.show(
            'a["parent"].elements()',
            'a["spouse"].symmetry()',
            '(~a["parent"]).nearest(2)',
            '(a["spouse"] @ a["parent"]).nearest(2)',
            '(a["parent"] @ a["spouse"]).nearest(2)',
            'a["spouse"].commutation(a["parent"])',
        )
        + SHARES
        + shell(folder, "out/family", "rules", "--top", "4", "--no-inverses")
        + "\nAn explanation lists the known facts that support a triple. This test triple is not in training:\n\n"
        + shell(folder, "out/family", "explain", *found.triple, "--top", "4")
        + "\n![The paths that support the prediction](images/family-explanation.png)\n\n"
        "A path query is answered step by step with a beam, which treats known facts as certain, or, with\n"
        "`--mode product`, by one product of group elements:\n\n"
        + shell(folder, "out/family", "query", "--from", "man_0600", "--via", "spouse", "--via", "parent",
                "--top", "3")
    )  # fmt: skip


def freebase_part(folder: Path, images: Path) -> str:
    predictor = dh.load(folder)
    found = well_explained(predictor)
    draw_explanation(found, images / "fb15k-237-explanation.png")
    name = "out/fb15k-237"
    return (
        "## FB15k-237: a graph with unknown rules\n\n"
        "```console\n$ dihedral train FB15k-237 --recipe algebra/fb15k-237-d4-graded --out out/fb15k-237\n```\n\n"
        + shell(folder, name, "rules", "--top", "10", "--no-inverses", "--kind", "composition", "--wide")
        + "\nThe explanation of a test triple that ranks first:\n\n"
        + shell(folder, name, "explain", *found.triple, "--top", "4")
        + f"\nThe explanation took {explanation_seconds(predictor, found):.2f} s with the model in memory.\n\n"
        "![The paths that support the prediction](images/fb15k-237-explanation.png)\n"
    )


RULES = f"""## Rule mining: evaluation

**Compositions.** The candidates are all (r₁, r₂, r₃) for which r₁ · r₂ joins at least 10 pairs in training; r₃ is any
relation. A candidate is correct if its standard confidence is at least one half. None of the scores counts chains of
facts. Bodies have only forward relations. The scores are:

- belief: the {BELIEF}, for every model whose relations are 2x2 blocks;
- count: the share of equal components;
- matrix cosine: the cosine similarity of the product of the matrices to the matrix of r₃;
- frequency: the frequency of r₃;
- shuffled: the {BELIEF} with the names of the relations permuted.

The columns are:

- AP: average precision;
- recall at N: recall among the N best candidates, where N is the number of correct ones;
- AP, new head: only candidates in which r₃ is neither r₁ nor r₂;
- AP, held out: of the pairs that a body joins in the complete graph, except those for which the rule holds in training,
  at least a tenth are facts of r₃;
- order: how often the right order of a body scores higher than the swapped order, for rules whose order matters in the
  graph. If r₃ is r₁ or r₂, both orders have the same matrix cosine in every model but RESCAL, and the same count
  ([why](concepts/algebra.md#compositions-from-the-codes-alone)); such a tie counts as half right.

Each result is one seed. The tables of FB15k-237, umls and family-neural-lp count through different entities, [as rules
do today](concepts/algebra.md#rules-and-their-counts). Those of FB15k and WN18 are older: pairs with head = tail counted
in bodies and in scores.

All models use the settings of our recipe, with these exceptions: relations without logits have a learning rate of 0.1,
O(2) has an L2 regulariser, and RESCAL has 100 dimensions and no relation prediction in its objective. The form of the
belief score and its constants 64 and 4 were chosen with these values on umls, family-neural-lp and FB15k-237, so expect
slightly lower values on other graphs.

**Inverse pairs.** Two relations with at least 10 facts each are an inverse pair if each implies the reverse of the
other with a confidence of at least 0.8. Valid and test contain a fifth of the facts of FB15k, so a perfect inverse has
about that confidence in training, and it is random which pairs pass. The row "all facts known" shows the result of a
score that knows the true confidences. The column for the complete graph is the fairer comparison.
"""


def rules_part() -> str:
    parts = [RULES]
    for graph in GRAPHS:
        content = read(f"rules-{graph.lower()}")
        if content is None:
            continue
        columns = {
            "average_precision": "AP", "recall_at_n": "recall at N", "average_precision_new_head": "AP, new head",
            "average_precision_held_out": "AP, held out", "order_accuracy": "order",
            "inverse_average_precision": "inverse AP",
            "inverse_average_precision_complete": "inverse AP, complete graph", "symmetry_auc": "symmetry AUC",
            "seconds": "seconds",
            "test_mrr": "test MRR",
        }  # fmt: skip
        used = {key: title for key, title in columns.items() if any(key in row for row in content["rows"])}
        rows = [
            [row["model"], row["score"], *(f"{row[key]:.3f}" if key in row else "" for key in used)]
            for row in content["rows"]
        ]
        parts.append(f"### {graph}\n\n" + markdown(["model", "score", *used.values()], rows))
        parts.append(source(content, f"rules-{graph.lower()}"))
    return "\n".join(parts)


def counting_part() -> str:
    content = read("rules-counting")
    if content is None:
        return ""
    rows = [
        [row["graph"], "yes" if row["inverses"] else "no", str(row["chains"]), f"{row['seconds']:.2f}",
         str(AMIE_SECONDS.get(row["graph"], "")) if not row["inverses"] else ""]
        for row in content["rows"]
    ]  # fmt: skip
    return (
        "### Exact counting\n\nTime to count every chain of two relations with a support of at least 10. The table\n"
        "gives the number of chains with a confidence of at least one half. The times of AMIE (milestone release,\n"
        "2 cores) are quoted for scale: AMIE mines more kinds of rules, and it was measured on another machine.\n\n"
        + markdown(["graph", "inverses in the body", "chains", "seconds", "AMIE, seconds"], rows)
        + "\n"
        + source(content, "rules-counting")
    )


def mining_part() -> str:
    content = read("rules-mining")
    if content is None:
        return ""
    rows = [
        [row["graph"], str(row["length"]), str(row["rules"]), str(row["of_three_steps"]), f"{row['seconds']:.0f}"]
        for row in content["rows"]
    ]
    return (
        "### Finding rules\n\nTime of `find_rules` with a trained model: the best 100 rules of each kind, with their\n"
        "scores, exact counts and examples.\n\n"
        + markdown(["graph", "longest body", "rules", "of three steps", "seconds"], rows)
        + "\n"
        + source(content, "rules-mining")
    )


def faithfulness_part() -> str:
    found = [content for graph in ("umls", "family-neural-lp") if (content := read(f"faithfulness-{graph}"))]
    rows = [
        [each["graph"], str(each["triples"]), str(each["named_hurts_more"]), str(each["random_hurts_more"]),
         f"{each['p']:.1e}",
         *(f"{each['mean_of_one_over_mean_rank'][kind]:.3f}" for kind in ("before", "named", "random"))]
        for each in (content["summary"] for content in found)
    ]  # fmt: skip
    header = ["graph", "triples", "named facts hurt more", "random facts hurt more", "p", "1 / mean rank before",
              "after removing named facts", "after removing random facts"]  # fmt: skip
    return (
        "### Are explanations faithful?\n\nThe facts named by an explanation are removed, and the model is trained\n"
        "again. The same is done with an equal number of random facts of the same two entities. The test triples have\n"
        "a mean rank of at most 10 and enough other facts, and are taken in random order. The removed facts are those\n"
        "of the three best paths. The significance is that of a sign test without ties, with 3 seeds. Most random\n"
        "facts do not connect the two entities, so the result shows that the named paths matter; it does not show\n"
        "that no other paths would.\n\n"
        + markdown(header, rows)
        + "\n"
        + "\n".join(source(content, f"faithfulness-{content['summary']['graph']}") for content in found)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    images = options.out / "images"
    images.mkdir(parents=True, exist_ok=True)
    page = (
        "# Interpreting a model\n\n"
        "*`python -m benchmarks.algebra_page out/fb15k-237` generates this page. All output is real.*\n\n"
        "Each relation of a trained model is a row of elements of D_K. The package `dihedral.interpretation`\n"
        "multiplies, inverts and compares these rows. It finds the rules that a model has learned, answers queries\n"
        "along paths of relations, and lists the facts that support a prediction. `dh.algebra(predictor)` is the\n"
        "entry point.\n\n"
    )
    parts = (
        family_part(images), freebase_part(options.model, images), rules_part(), counting_part(), mining_part(),
        faithfulness_part(),
    )  # fmt: skip
    (options.out / "algebra.md").write_text(page + "\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
