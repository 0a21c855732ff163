"""The tables of docs/interpretation.md: rules found by models, counting, chance, and faithful explanations."""

from __future__ import annotations

from statistics import mean, median

from benchmarks.pages.records import Row, number, read, read_rows, source
from paper.tables import markdown

COMPOSITION_GRAPHS = ("FB15k-237", "umls", "family-neural-lp")
INVERSE_GRAPHS = ("FB15k",)
SCORES = {"belief": "belief", "matrix cosine": "cosine"}
CONTROLS = {"frequency": "control: frequency of r₃", "all facts known": "control: all facts known"}
LEFT_OUT = {"D4-Gumbel, paths", "graded D4-Gumbel, paths"}  # between those without and with composition loss
AMIE_SECONDS = {"FB15k-237": 156, "WN18": 37, "family-neural-lp": 14}  # quoted: AMIE milestone release, 2 cores


def _rules(graphs: tuple[str, ...], columns: dict[str, str]) -> str:
    """Quality of rules, one line per graph and model: each column by belief score and by matrix cosine."""
    rows = []
    for graph in graphs:
        by_model: dict[str, dict[str, Row]] = {}
        for row in read(f"rules-{graph.lower()}")["rows"]:
            if row["score"] == "shuffled" or row["model"] in LEFT_OUT:
                continue
            control = row["score"] in CONTROLS
            name = CONTROLS[row["score"]] if control else row["model"]
            by_model.setdefault(name, {})["belief" if control else row["score"]] = row
        for model, found in by_model.items():
            cells = (number(found.get(score, {}).get(key)) for key in columns for score in SCORES)
            rows.append([graph, model, *cells])
    names = ", ".join(f"`results/rules-{graph.lower()}.json`" for graph in graphs)
    titles = [f"{title}, {score}" for title in columns.values() for score in SCORES.values()]
    return markdown(["graph", "model", *titles], rows) + f"\n*{names}.*\n"


def compositions() -> str:
    columns = {"average_precision_new_head": "AP", "order_accuracy": "order"}
    return _rules(COMPOSITION_GRAPHS, columns)


def path_compositions() -> str:
    """The same of path models: by belief, by the cosine of matrices and by products of gates alone."""
    scores = ("belief", "matrix cosine", "gates")
    columns = {"average_precision_new_head": "AP", "order_accuracy": "order"}
    by_model: dict[tuple[str, str], dict[str, Row]] = {}
    for row in read_rows("rules-paths"):
        rotations = ", rotations" if row["recipe"]["model"] == "cyclic-argmax" else ""
        by_model.setdefault((row["graph"], row["update"] + rotations), {})[row["score"]] = row
    rows = []
    for (graph, model), by_score in sorted(by_model.items()):
        rows.append([graph, model, *(number(by_score[score][key]) for key in columns for score in scores)])
    names = [f"{title}, {score}" for title in columns.values() for score in ("belief", "cosine", "gates")]
    return markdown(["graph", "model", *names], rows) + "\n*`results/rules-paths.jsonl`.*\n"


def inverses() -> str:
    return _rules(INVERSE_GRAPHS, {"inverse_average_precision_complete": "AP"})


def counting() -> str:
    """Seconds to count every chain of two relations, and to find rules."""
    by_graph: dict[str, dict[bool, Row]] = {}
    for row in read("rules-counting")["rows"]:
        by_graph.setdefault(row["graph"], {})[row["inverses"]] = row
    rows = []
    for graph, found in by_graph.items():
        cells = (cell for inverses in (False, True)
                 for cell in (found[inverses]["chains"], f"{found[inverses]['seconds']:.2f}"))  # fmt: skip
        rows.append([graph, *cells, AMIE_SECONDS.get(graph, "")])
    header = ["graph", "chains", "seconds", "chains with inverses", "seconds", "AMIE, seconds"]
    found_rules = read("rules-mining")["rows"]
    mined = [f"{row['seconds']:.0f} s with bodies of up to {row['length']} steps" for row in found_rules]
    text = f"\n`find_rules` takes {' and '.join(mined)} on FB15k-237.\n"
    return markdown(header, rows) + text + source("rules-counting")


def faithfulness() -> str:
    rows = []
    for graph in ("umls", "family-neural-lp"):
        found = read(f"faithfulness-{graph}")["summary"]
        ranks = (number(found["mean_of_one_over_mean_rank"][kind]) for kind in ("before", "named", "random"))
        rows.append([graph, found["triples"], found["named_hurts_more"], found["random_hurts_more"],
                     f"{found['p']:.0e}", *ranks])  # fmt: skip
    header = ["graph", "triples", "named facts hurt more", "random facts hurt more", "p", "mean of 1 / rank before",
              "without named facts", "without random facts"]  # fmt: skip
    return markdown(header, rows) + source("faithfulness-umls") + source("faithfulness-family-neural-lp")


def reasons() -> str:
    """What explanations and the first rules of default models show, a sentence per measure."""
    found = [read(f"reasons-{graph}") for graph in ("umls", "family-neural-lp", "wn18rr")]
    first, last = found[0], found[-1]
    shown = ", ".join(f"{row['shown']} of {row['with_a_path']} on {row['graph']}" for row in found)
    best = "{mean_confidence:.2f} on {graph} (the best of all: {mean_confidence_of_best:.2f})"
    rules = ", ".join(best.format(**row) for row in found)
    return (
        f"Of the {first['proposals']} most probable missing facts of an embedding with default settings, those that a "
        f"counted path of one or two steps joins show one: {shown}. The first {first['first_rules']} rules of the "
        f"default list have a mean confidence of {rules}. {last['graph']} is a part of the graph with "
        f"{last['entities']:,} entities; all models were trained for few epochs.\n\n*`results/reasons-*.json`.*"
    )


def path_faithfulness() -> str:
    """Ranks without the facts of explanations, of embeddings that are trained again and of path models."""

    def cells(ranks: list[list[float]]) -> list[str]:
        return [
            f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in [*map(median, ranks), *map(mean, ranks)]
        ]

    rows, kinds = [], (("all", "all paths of three kinds"), ("shown", "one path of each kind"))
    for graph in ("umls", "family-neural-lp", "WN18RR"):
        if graph != "WN18RR":  # of which no embeddings were trained again
            found = read(f"faithfulness-{graph}")["rows"]
            facts = f"{median(row['removed'] for row in found):.0f}"
            of_rows = [[row[name] for row in found] for name in ("before", "named", "random")]
            rows.append([graph, "embeddings", "three paths", facts, *cells(of_rows)])
        for model in read_rows("faithfulness-paths"):
            for name, what in kinds if (model["graph"], model["update"]) == (graph, "gate") else ():
                found = [[row[each] for row in model["rows"]] for each in ("before", name, f"random_{name}")]
                facts = f"{model['median_facts'][name]:.0f}"
                rows.append([graph, "path model", what, facts, *cells(found)])
    header = ["graph", "model", "facts of", "number", "median rank before", "without them", "without random facts",
              "mean rank before", "without them", "without random facts"]  # fmt: skip
    return markdown(header, rows) + "\n*`results/faithfulness-paths.jsonl`.*\n"


def chance() -> str:
    """Symmetric relations by share and by significance."""
    columns = {
        "graph": "graph", "relations": "relations", "nearest to their own inverse, by share": "own_inverse_by_share",
        "symmetric in the graph": "symmetric_in_graph", "shown as symmetric": "symmetric_shown",
        "shown and in the graph": "symmetric_shown_and_in_graph",
    }  # fmt: skip
    rows = [[row[key] for key in columns.values()] for row in read("chance")["rows"]]
    return markdown(list(columns), rows) + source("chance")
