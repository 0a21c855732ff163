"""Tables of accuracy, for docs/results.md: models, order of answers, judgements, queries, updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.pages.records import Row, number, ratio, read, read_rows, source, spread
from dihedral.learn import load_recipe, recipe_names
from dihedral.learn.checkpoint import run_identity
from paper.tables import markdown

CQD = {  # quoted: Hits@3 of CQD-Beam (Arakelyan et al. 2021) on the test part of the query set
    "1p": 0.512, "2p": 0.279, "3p": 0.219, "2i": 0.352, "3i": 0.457, "ip": 0.129, "pi": 0.249, "2u": 0.284, "up": 0.128,
}  # fmt: skip
GRAPH_NETWORKS = {  # quoted: test MRR of WN18RR and FB15k-237 in the papers
    "NBFNet": (0.551, 0.415), "AdaProp": (0.562, 0.417), "RED-GNN": (0.533, 0.374),
}  # fmt: skip
PATHS = "*`results/paths.jsonl`.*"


def choose() -> str:
    """Models and rules on the same graph."""
    rows = []
    for row in read("choose")["rows"]:
        means = {key: mean(run[key] for run in row["runs"]) for key in row["runs"][0]}
        values = (number(means[key]) for key in ("mrr", "hits@10"))
        size = f"{means['relation_kb']:.1f}" if means["relation_kb"] else ""
        rows.append([row["graph"], row["method"], *values, f"{means['seconds']:.0f}", size])
    header = ["graph", "method", "test MRR", "Hits@10", "seconds to train", "relations, kB"]
    return markdown(header, rows) + "\n*`results/choose.json`; each row names its machine.*\n"


def defaults() -> str:
    """The default path model, the default embedding and ComplEx per graph."""
    graphs: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in read_rows("default-kinds"):
        if row["seed"] == 0 and row["changes"].keys() <= {"epochs", "minutes", "validate_on"}:  # limits
            graphs[row["graph"]].setdefault(row["kind"], row)
    measured = [(name, found) for name, found in graphs.items() if {"paths", "embedding"} <= found.keys()]
    rows, kinds = [], ("paths", "embedding", "complex")
    for name, found in sorted(measured, key=lambda item: item[1]["paths"]["train"]):
        rows_of = [found.get(kind, {}) for kind in kinds]
        cells = ["/".join(number(row[split]) for split in ("valid", "test")) if row else "" for row in rows_of]
        spent = [row.get("cpu_seconds") for row in rows_of[:2]]
        minutes = "/".join(number(each["train"] / 60, 1) if each else "–" for each in spent)
        rows.append([name, f"{found['paths']['train']:,}", *cells, minutes])
    header = ["graph", "facts", "path model", "embedding", "ComplEx", "CPU minutes"]
    return markdown(header, rows) + "\n*`results/default-kinds.jsonl`.*\n"


def runs_by_recipe() -> dict[tuple[str, str], list[Row]]:
    """The rows of results/ordering.jsonl per graph and recipe."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in read_rows("ordering"):
        found[row["graph"], row["recipe"]["name"]].append(row)
    return found


def estimates(found: list[Row]) -> list[float]:
    """Test MRR in order of probability, per seed: that of all facts by score, plus the difference on the sample."""
    tests = [row["test"] for row in found]
    return [test["score, all triples"] + test["probability"]["mrr"] - test["score"]["mrr"] for test in tests]


def is_current(row: Row) -> bool:
    """Whether the recipe still has the settings that the row was measured with."""
    settings = row["recipe"]
    return settings["name"] not in recipe_names() or (
        run_identity(load_recipe(settings["name"]).to_dict(), 0, "") == run_identity(settings, 0, "")
    )


def order() -> str:
    """Test MRR in order of score and of probability."""
    rows = []
    for (graph, name), found in runs_by_recipe().items():
        by_score = spread([row["test"]["score, all triples"] for row in found])
        name += "" if all(map(is_current, found)) else ", other settings"
        rows.append([graph, name, by_score, spread(estimates(found)), len(found)])
    for row in read_rows("ordering-fresh"):
        both = (number(row["test"][order]["mrr"]) for order in ("score", "probability"))
        rows.append([row["graph"], "defaults, two minutes", *both, 1])
    header = ["graph", "recipe", "by score", "by probability", "seeds"]
    return markdown(header, rows) + "\n*`results/ordering.jsonl`, `results/ordering-fresh.jsonl`.*\n"


def evidence() -> str:
    """Test MRR with all evidence, and with one kind of it replaced by its median."""
    found = read_rows("ordering-evidence")
    rows = [
        [row["graph"], *map(number, (row["test"]["score"]["mrr"], row["test"]["probability"]["mrr"])),
         *map(number, row["without"].values())]
        for row in found
    ]  # fmt: skip
    header = ["graph", "score", "all evidence", *(f"without {name}" for name in found[0]["without"])]
    return markdown(header, rows) + "\n*`results/ordering-evidence.jsonl`.*\n"


def judgements() -> str:
    """Accuracy and calibration error of judgements of missing facts, by the kind of the false triples among them."""
    rows = []
    for row in read("missing")["rows"]:
        kinds = [row["judgements"][name] for name in ("both kinds", "an entity replaced", "proposals")]
        errors = (number(each["expected_calibration_error"]) for each in kinds)
        both = kinds[0]
        rows.append(
            [row["graph"], f"{both['triples']:,}", number(both["accuracy"]), *errors, number(both["error_by_chance"])]
        )
    header = ["graph", "triples", "accuracy", "error", "with an entity replaced", "proposals", "error by chance"]
    return markdown(header, rows) + source("missing")


def claims() -> list[Row]:
    """What is claimed of missing facts, and what holds: of embeddings, then of path models."""
    of_paths = [row | {"graph": f"{row['graph']}, path model"} for row in read("missing-paths")["rows"]]
    return [*read("missing")["rows"], *of_paths]


def missing() -> str:
    """Precision of lists of missing facts beside what they claim."""
    cuts = ("20", "100", "500", "1000")
    rows = []
    for row in claims():
        listed, estimate = row["list"], row["estimate"]
        cells = (f"{listed[cut]['holds']:.2f} / {listed[cut]['claimed']:.2f}" if cut in listed else "" for cut in cuts)
        found = "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**estimate)
        name = row["graph"] + (" (fresh)" if row["fresh"] else "")
        scored = "{proposals:,} in {cpu_seconds:.0f} s".format(**row["ranking"]) if "ranking" in row else ""
        rows.append([name, f"{row['missing']:,}", f"{row['ratio']:.2f}", found, *cells, scored])
    header = ["graph", "missing facts", "ratio", "estimate", *(f"best {cut}" for cut in cuts), "scored, CPU time"]
    return markdown(header, rows) + source("missing") + source("missing-paths")


def hold_outs() -> str:
    """Lists of missing facts over other random hold-outs: how often the interval held what was found."""
    cuts, rows = ("100", "500", "1000"), []
    for row in read("missing")["rows"]:
        if found := row["hold_outs"]:
            cells = (
                f"{found[cut]['holds']:.2f} / {found[cut]['claimed']:.2f}, {found[cut]['inside']:.0%}"
                for cut in cuts if cut in found
            )  # fmt: skip
            rows.append([row["graph"], found["hold_outs"], *cells])
    return markdown(["graph", "hold-outs", *(f"best {cut}" for cut in cuts)], rows) + source("missing")


def answers() -> str:
    """Probabilities of the ten best answers to the questions of missing facts, by the number of known facts."""
    rows = []
    for row in read("missing")["rows"]:
        by_facts = {each["facts"]: each for each in row["answers"]}
        cells = (number(each["error"]) if each else "" for each in map(by_facts.get, (0, 1, 2, 4, 11)))
        rows.append([row["graph"], "{holds:.3f} / {claimed:.3f}".format(**by_facts[0]), *cells])
    header = ["graph", "all", "error", "1 fact", "2 or 3", "4 to 10", "more"]
    return markdown(header, rows) + source("missing")


# --- queries ----------------------------------------------------------------------------------------


def queries() -> str:
    """Accuracy, speed and calibration of answers to queries."""
    content = read("queries")
    setup = ("probabilities", "width", "conjunction", "ways")
    first = [content["rows"][0].get(name) for name in setup]
    found = [row for row in content["rows"] if [row.get(name) for name in setup] == first]
    paths = {row["kind"]: row for row in read("queries-paths")["rows"]}
    columns: list[Callable[[Row], float | None]] = [
        lambda row: row["all"]["hits@3"], lambda row: paths[row["kind"]]["all"]["hits@3"],
        lambda row: CQD.get(row["kind"]), lambda row: row["more missing"]["hits@3"],
        lambda row: paths[row["kind"]]["more missing"]["hits@3"],
    ]  # fmt: skip
    rows = [
        [row["kind"], *(number(value(row)) for value in columns), number(row["ms_one"], 1),
         number(paths[row["kind"]]["cpu_ms_one"], 0)]
        for row in found
    ]  # fmt: skip
    averages = ([value for row in found if (value := column(row)) is not None] for column in columns)
    rows.append(["average", *(number(mean(values)) for values in averages), "", ""])
    header = ["type", "embedding", "path model", "CQD-Beam", "embedding, more missing", "path model, more missing",
              "embedding, ms", "path model, CPU ms"]  # fmt: skip
    return markdown(header, rows) + source("queries") + source("queries-paths")


def drawn_queries() -> str:
    """Average Hits@3 over the types of queries that are drawn from valid, and the CPU time of one query."""
    found: dict[str, dict[bool, Row]] = defaultdict(dict)
    for row in read_rows("queries-drawn"):
        kinds = {each["kind"]: each for each in row["rows"]}
        found[row["graph"]][row["recipe"]["objective"] == "paths"] = kinds
    rows = [
        [graph, *(number(mean(each["all"]["hits@3"] for each in kinds[paths].values())) for paths in (False, True)),
         *(number(kinds[paths]["2p"]["cpu_ms_one"], 1) for paths in (False, True))]
        for graph, kinds in found.items()
    ]  # fmt: skip
    header = ["graph", "embedding", "path model", "embedding, CPU ms of 2p", "path model, CPU ms of 2p"]
    return f"{markdown(header, rows)}\n\n*`results/queries-drawn.jsonl`.*"


def asked() -> str:
    """Probabilities of the ten best answers to drawn queries that known facts do not give."""
    rows = []
    for row in claims():
        if found := row["queries"]:
            shares = "{holds:.3f} / {claimed:.3f}".format(**found["all"])
            worst = max((found[kind]["error"], kind) for kind in CQD if kind in found)
            rows.append([row["graph"], shares, number(found["all"]["error"]), f"{worst[0]:.3f}, {worst[1]}"])
    return (
        markdown(["graph", "all", "error", "largest error of a type"], rows)
        + source("missing")
        + source("missing-paths")
    )


# --- updates ----------------------------------------------------------------------------------------


# rows with "keep_optimiser" are of updates that also train vectors of known entities, and place with other settings


def living_rows(paths: bool) -> dict[str, dict[str, list[Row]]]:
    """The rows of results/living.jsonl by graph and scenario: of path models, or of models with entity vectors."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in read_rows("living"):
        if paths == (row["recipe"] or "").startswith("paths/"):
            size = f", 2L = {row['settings']['dimension']}" if "dimension" in row["settings"] else ""
            found.setdefault(f"{row['graph']}{size}", {}).setdefault(row["scenario"], []).append(row)
    return found


def average(rows: Iterable[Row], value: Callable[[Row], float | None]) -> str:
    """The mean of a share over the rows that have it."""
    found = [each for each in map(value, rows) if each is not None]
    return ratio(mean(found)) if found else ""


def updates() -> str:
    """Accuracy of updated models with entity vectors as a share of that of retrained ones."""

    def stays(row: Row) -> float:
        return row["base_mrr"] / row["retrained_mrr"]

    def placed(row: Row) -> float | None:
        return None if "keep_optimiser" in row else row["updated_share"]

    def trained(key: str) -> Callable[[Row], float | None]:
        return lambda row: row[key] if "keep_optimiser" in row else None

    rows = []
    for name, found in living_rows(paths=False).items():
        facts, entities = found.get("facts", []), found.get("entities", [])
        shares = average(facts, stays), average(facts, trained("share_of_mrr"))
        more = average(entities, placed), average(entities, trained("folded_share"))
        rows.append([name, *shares, *more, average(entities, trained("updated_share"))])
    header = ["graph", "facts", "facts, trained", "entities", "entities, few candidates", "entities, trained"]
    shown = [row for row in rows if any(row[1:]) and "-12," not in row[0]]  # other parts of the same graphs
    return markdown(header, shown) + "\n*`results/living.jsonl`; means over seeds.*\n"


def path_updates() -> str:
    """Accuracy of updated path models as a share of that of retrained ones, and what tells that a fact was removed."""
    rows = []
    for name, found in living_rows(paths=True).items():
        keys = {"facts": "share_of_mrr", "entities": "updated_share", "relation": "share", "rounds": "share_of_mrr"}
        shares = [average(found.get(scenario, []), lambda row, key=key: row[key]) for scenario, key in keys.items()]
        ranked = [
            number(mean(row[key] for row in found["removal"])) if "removal" in found else ""
            for key in ("updated_auc", "again_auc", "updated_ks_p")
        ]
        rows.append([name, *shares, *ranked])
    header = ["graph", "facts", "entities", "a relation", "twenty rounds", "AUC", "AUC of two trainings", "KS p"]
    return markdown(header, rows) + "\n*`results/living.jsonl`; means over seeds.*\n"


def growth() -> str:
    """How much of the MRR of retraining a model keeps, by the facts that arrived since training; means over graphs."""
    found = [groups["growth"] for groups in living_rows(paths=False).values() if "growth" in groups]
    shares = found[0][0]["changed"]
    stays, trained = (
        [mean(mean(value(row, i) / row["retrained_mrr"][i] for row in rows) for rows in found)
         for i in range(len(shares))]
        for value in (lambda row, i: row["base_mrr"], lambda row, i: row["mrr"][i])
    )  # fmt: skip
    rows = [["stay", *map(ratio, stays)], ["trained too", *map(ratio, trained)]]
    return markdown(["known vectors", *(f"+{share:.0%}" for share in shares)], rows)


def path_models() -> str:
    """Path models with 2L = 32 on the graphs that they were trained on, beside others."""
    rows = []
    for (graph, update, steps, dimension, device, _), runs in sorted(_path_runs().items()):
        if "inductive_test" in runs[0] or _elements(runs[0]) != "D8" or dimension != 32:
            continue
        shared = max(run.get("runs_on_the_device", 1) for run in runs)
        cores = "one core" if "train_cpu_seconds" in runs[0] else "two cores"
        where = {"cpu": cores, "cuda": "H200" if shared == 1 else f"H200/{shared}"}[device]
        test, valid = (spread([run[split] for run in runs]) for split in ("test", "valid"))
        valid += "" if "train_cpu_seconds" in runs[0] else " †"  # earlier runs filtered valid by test too
        rows.append([graph, update, steps, test, valid, len(runs), where, _path_seconds(runs)])
    columns = ["graph", "update", "steps", "test MRR", "valid MRR", "seeds", "trained on", "seconds"]
    quoted = [[name, *map(number, values)] for name, values in GRAPH_NETWORKS.items()]
    return f"{markdown(columns, rows)}\n\n{markdown(['quoted', 'WN18RR', 'FB15k-237'], quoted)}\n\n{PATHS}"


def inductive() -> str:
    """Path models on graphs of entities that training has not seen, beside RED-GNN."""
    found = {
        graph: runs
        for (graph, *_, changes), runs in sorted(_path_runs().items())
        if "inductive_test" in runs[0] and changes == "{}"
    }
    rows = [
        [graph, spread([run["inductive_test"] for run in runs]), number(runs[0]["red_gnn"]), len(runs),
         _path_seconds(runs)]
        for graph, runs in found.items()
    ]  # fmt: skip
    ours = mean(mean(run["inductive_test"] for run in runs) for runs in found.values())
    rows.append(["mean", number(ours), number(mean(runs[0]["red_gnn"] for runs in found.values())), "", ""])
    return f"{markdown(['graph', 'path model', 'RED-GNN (quoted)', 'seeds', 'seconds'], rows)}\n\n{PATHS}"


def path_variants() -> str:
    """Valid/test MRR of path models by their elements and update: on one graph, and means over graphs and seeds."""
    kinds = "D8", "graded", "rotations"
    found: dict[tuple[str, str], dict[str, dict[int, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_rows("paths"):
        if "train_cpu_seconds" in row and set(row["changes"]) <= {"model", "levels", "update"}:
            found[row["graph"], row["settings"]["update"]][_elements(row)][row["seed"]] = row
    rows: list[Any] = []
    for (graph, update), by_kind in sorted(found.items()):
        if len(by_kind) == len(kinds):
            runs = [list(by_kind[kind].values()) for kind in kinds]
            prefix = "inductive_" if "inductive_test" in runs[0][0] else ""
            means = [[mean(run[prefix + split] for run in each) for split in ("valid", "test")] for each in runs]
            rows.append((graph, update, means, "/".join(str(len(each)) for each in runs)))
    for update in dict.fromkeys(row[1] for row in rows):
        tables = [row[2] for row in rows if row[1] == update]
        rows.append((f"mean of {len(tables)}", update, np.mean(tables, axis=0).tolist(), ""))
    shown = [
        [*row[:2], *("/".join(map(number, each)) for each in row[2]), row[3]]
        for row in rows if row[0] == "nell_v1" or row[0].startswith("mean")
    ]  # fmt: skip
    return f"{markdown(['graph', 'update', *kinds, 'seeds'], shown)}\n\n{PATHS}"


def fused() -> str:
    """Test MRR of a path model and an embedding, and of the probabilities from the evidence of both."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in read_rows("fused"):
        groups[row["graph"], *row["recipes"]].append(row)
    ordered = runs_by_recipe()
    rows = [
        [graph, *(spread([run["test"][kind] for run in runs]) for kind in ("embedding", "paths")),
         spread(estimates(ordered[graph, embedding])) if (graph, embedding) in ordered else "",
         *(spread([run["test"][kind] for run in runs]) for kind in ("paths and counts", "all")), len(runs)]
        for (graph, _, embedding), runs in groups.items()
    ]  # fmt: skip
    header = ["graph", "embedding", "path model", "embedding and counts", "path model and counts", "all", "seeds"]
    return f"{markdown(header, rows)}\n\n*`results/fused.jsonl`.*"


def _elements(run: Row) -> str:
    """What the relations of a path model are made of."""
    if run["settings"]["model"] == "cyclic-argmax":
        return "rotations"
    return "D8" if run["settings"]["levels"] == "1" else "graded"


def _path_seconds(runs: list[Row]) -> int:
    """Seconds of training: of CPU time where it is recorded, because the machine was busy."""
    return round(mean(float(run.get("train_cpu_seconds") or run["train_seconds"]) for run in runs))


def _path_runs() -> dict[tuple[Any, ...], list[Row]]:
    """Runs of path models by graph, update, steps, dimension, device and changes of the recipe.

    Runs with and without CPU time are of different versions; those with more seeds are taken.
    """
    found: dict[tuple[Any, ...], dict[bool, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rows("paths"):
        settings = row["settings"]
        kind = row["graph"], settings["update"], settings["steps"], settings["dimension"], row["device"]
        found[*kind, str(row["changes"])]["train_cpu_seconds" in row].append(row)
    return {kind: max(versions.values(), key=len) for kind, versions in found.items()}
