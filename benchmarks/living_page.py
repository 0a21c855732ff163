"""The tables of docs/how-to/update.md from results/living.jsonl; `python -m benchmarks.living_page` draws its plot."""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import mean
from typing import Any

from benchmarks.living import RECORD
from benchmarks.record import RESULTS
from benchmarks.report import DOCS
from dihedral.io.jsonl import read_lines
from paper.tables import markdown

IMAGE = DOCS / "images" / "living.png"
# earlier rows are of another way to update; they stay in the record
SINCE = {"facts": "2026-11-18 01:44", "correction": "2026-11-18 05:03", "rounds": "2026-11-18 05:03"}
SINCE_OTHERS = "2026-11-18 01:00"
Row = dict[str, Any]


def rows() -> list[Row]:
    """The latest row of each run."""
    run = "graph", "scenario", "seed", "device", "recipe", "settings", "keep_optimiser"
    found = [
        row for row in read_lines(RESULTS / f"{RECORD}.jsonl")
        if row["environment"]["time"] >= SINCE.get(row["scenario"], SINCE_OTHERS)
    ]  # fmt: skip
    return list({json.dumps([row[key] for key in run], sort_keys=True): row for row in found}.values())


def groups(found: Iterable[Row], scenario: str) -> dict[str, list[Row]]:
    """The rows of a scenario by graph, settings and whether the optimiser's state was kept."""
    result: dict[str, list[Row]] = {}
    for row in found:
        if row["scenario"] == scenario:
            state = ", optimiser kept" if row["keep_optimiser"] else ""
            size = f", 2L = {row['settings']['dimension']}" if "dimension" in row["settings"] else ""
            result.setdefault(f"{row['graph']}{size}{state}", []).append(row)
    return result


def average(found: list[Row], key: str, form: str = ".3f") -> str:
    """The mean of a column; of shares of time, over rows that were measured on a CPU or alone on a GPU."""
    if key == "share_of_seconds":
        found = list(filter(has_time, found))
    return format(mean(row[key] for row in found), form) if found else ""


def table(scenario: str, header: list[str], columns: dict[str, str], text: str) -> str:
    """A table of means over seeds: one row per graph, one column per key with its format."""
    body = [
        [name, str(len(found)), *(average(found, key, form) for key, form in columns.items())]
        for name, found in groups(rows(), scenario).items()
    ]
    return f"{text}\n\n{markdown(['graph', 'seeds', *header], body)}\n" if body else ""


def growth_table() -> str:
    """How much of the MRR of retraining updates keep, by the facts that arrived since training."""
    found = groups(rows(), "growth")
    if not found:
        return ""
    shares = next(iter(found.values()))[0]["changed"]
    body, columns = [], []
    for name, each in found.items():
        kept = [mean(row["mrr"][i] / row["retrained_mrr"][i] for row in each) for i in range(len(shares))]
        columns.append(kept)
        body.append([name, str(len(each)), *(f"{share:.1%}" for share in kept)])
    body.append(["mean", "", *(f"{mean(column):.1%}" for column in zip(*columns, strict=True))])
    text = (
        "**Growth.** Facts arrive in five updates, until there are half as many again as at training: test MRR of the\n"
        "updated model, as a share of that of a model trained on the same facts."
    )
    return f"{text}\n\n{markdown(['graph', 'seeds', *(f'+{share:.0%}' for share in shares)], body)}\n"


REMOVED = {
    "trained_removed_mrr": ".3f", "updated_removed_mrr": ".3f", "retrained_removed_mrr": ".3f", "updated_ks_p": ".2f",
    "updated_auc": ".3f", "updated_test_mrr": ".3f", "retrained_test_mrr": ".3f", "again_test_mrr": ".3f",
}  # fmt: skip
REMOVED_HEADER = ["MRR of removed facts: trained", "updated", "retrained", "KS p", "AUC", "test: updated", "retrained",
                  "retrained, other seed"]  # fmt: skip


def measurements() -> str:
    """All tables."""
    machines = sorted({row["environment"].get("gpu") or row["environment"]["cpu"] for row in rows()})
    parts = [
        table("facts", ["retrained", "not updated", "updated / retrained", "share of its time"],
              {"retrained_mrr": ".3f", "base_mrr": ".3f", "share_of_mrr": ".1%", "share_of_seconds": ".1%"},
              "**Facts.** 5 % of the training facts arrive in ten batches: test MRR, and the time that\n"
              "these take to train, as a share of training again."),
        table("entities", ["retrained", "folded in", "updated", "other facts: retrained", "folded in", "updated"],
              {"retrained_mrr": ".3f", "folded_share": ".1%", "updated_share": ".1%",
               "retrained_others_mrr": ".3f", "folded_others_mrr": ".3f", "updated_others_mrr": ".3f"},
              "**Entities.** 10 % of the entities arrive with half of their facts; the other half is asked. MRR of\n"
              "the retrained model, the shares of it that fold-in and an update reach, and test MRR of other facts."),
        table("relation", ["retrained", "updated", "share"],
              {"retrained_mrr": ".3f", "updated_mrr": ".3f", "share": ".1%"},
              "**A relation.** It arrives with its training facts, and its other facts are asked."),
        table("removal", REMOVED_HEADER, REMOVED,
              "**Removal.** 5 % of the training facts are removed. Ranks of removed facts against those of a model\n"
              "that never saw them: Kolmogorov-Smirnov test, and how well ranks tell both apart (AUC; .5 is chance)."),
        table("correction", ["rows that start over", "share of the time", *REMOVED_HEADER],
              {"share_of_rows": ".1%", "share_of_seconds": ".1%"} | REMOVED,
              "**Correction.** The same with 0.1 % of the training facts, at least 20, so that most rows stay."),
        table("rounds", ["retrained", "updated / retrained", "trend per round"],
              {"retrained_mrr": ".3f", "share_of_mrr": ".1%", "trend_per_round": "+.4f"},
              "**Rounds.** Facts and entities arrive and facts are removed, 5 % of each in twenty rounds: test MRR."),
        growth_table(),
    ]  # fmt: skip
    source = f"*`python -m benchmarks.living`, {', '.join(machines)}; `results/{RECORD}.jsonl`; means over seeds.*\n"
    return "\n".join(part for part in parts if part) + "\n" + source


def has_time(row: Row) -> bool:
    """Whether nothing else took a part of the machine's time."""
    return bool(row["device"] == "cpu" or row.get("alone"))


def plot() -> None:
    """MRR against the share of the time of retraining, over the rounds, and against the facts that arrived."""
    import matplotlib.pyplot as plt

    def share(row: Row) -> list[float]:
        return [value / row["retrained_mrr"] for value in (row["base_mrr"], *row["mrr"])]

    def spent(row: Row) -> list[float]:
        return [100 * sum(row["train_seconds"][:i]) / row["retrained_seconds"] for i in range(len(row["mrr"]) + 1)]

    def of_same_facts(row: Row) -> list[float]:
        return [mrr / retrained for mrr, retrained in zip(row["mrr"], row["retrained_mrr"], strict=True)]

    figure, panels = plt.subplots(1, 3, figsize=(12, 4.5), layout="constrained", sharey=True)
    colours: dict[str, str] = {}
    for axes, scenario, x, y in (
        (panels[0], "facts", spent, share),
        (panels[1], "rounds", lambda row: list(range(len(row["mrr"]) + 1)), share),
        (panels[2], "growth", lambda row: [100 * each for each in row["changed"]], of_same_facts),
    ):
        for name, found in groups(filter(has_time, rows()) if scenario == "facts" else rows(), scenario).items():
            colour = colours.setdefault(name, f"C{len(colours)}")
            for row in found:
                axes.plot(x(row), y(row), marker=".", color=colour)
        axes.axhline(1, color="grey", linewidth=0.8)
    panels[0].set(xlabel="time of the updates, % of retraining", ylabel="test MRR / retrained", title="Facts")
    panels[1].set(xlabel="round", title="Rounds")
    panels[2].set(xlabel="facts that arrived since training, %", title="Growth")
    lines = [plt.Line2D([], [], marker=".", color=colour) for colour in colours.values()]
    figure.legend(lines, colours, loc="outside lower center", ncols=4, fontsize=9)
    figure.savefig(IMAGE, dpi=120)


if __name__ == "__main__":
    plot()
