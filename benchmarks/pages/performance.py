"""The tables of docs/performance.md."""

from __future__ import annotations

from statistics import mean

from benchmarks.cpu import OURS, PLAIN
from benchmarks.pages.cost_model import OBJECTIVES, max_entities, worst_errors
from benchmarks.pages.records import number, read, seconds, source
from paper.tables import markdown

PEERS = ("PyKEEN", "TorchKGE")
CPU_TASKS = {
    "epoch, 10 negatives": "training epoch, 10 negatives",
    "filtered ranking of test": "filtered ranking of test",
    "top-10 of 1000 queries": "top 10 of 1000 questions",
}
WIKIDATA5M = "a graph of the size of Wikidata5M"
GPUS = {"24 GB": 24e9, "48 GB": 48e9, "80 GB": 80e9, "H200, 141 GB": 141e9}


def cpu_rows(libraries: tuple[str, ...]) -> list[list[str]]:
    """Seconds per graph, task and library, on a CPU."""
    taken = {(row["graph"], row["what"], row["library"]): row["seconds"] for row in read("cpu-engine")["rows"]}
    return [
        [graph, shown, *(seconds(taken.get((graph, task, library))) for library in libraries)]
        for graph in ("WN18RR", "FB15k-237") for task, shown in CPU_TASKS.items()
    ]  # fmt: skip


def cpu() -> str:
    same = read("cpu-engine")["mrr_of_one_model"]
    text = f"\nThe MRR of one trained model is {same['dihedral']:.7f} in dihedral and {same['pykeen']:.7f} in PyKEEN.\n"
    header = ["graph", "task", "dihedral", "dihedral without a compiler", *PEERS]
    return markdown(header, cpu_rows((OURS, PLAIN, *PEERS))) + text + source("cpu-engine")


def default_speed() -> str:
    """The default with grouped questions and with single facts."""
    content = read("default-speed")
    epochs = {(row["graph"], row["form"]): number(row["epoch_cpu_seconds"]) for row in content["epochs"]}
    taken: dict[str, list[dict[str, float]]] = {}
    for row in content["equal_time"]:
        taken.setdefault(row["graph"], []).append(row)
    rows = []
    for graph in dict.fromkeys([*taken, *(name for name, _ in epochs)]):
        means = (
            number(mean(row[key] for row in taken[graph])) if graph in taken else ""
            for key in ("single", "grouped", "cpu_seconds")
        )
        rows.append([graph, *(epochs.get((graph, form), "") for form in ("single", "grouped")), *means])
    header = ["graph", "epoch, single", "grouped", "valid MRR, single", "grouped", "after CPU seconds"]
    return markdown(header, rows) + source("default-speed")


def gpu() -> str:
    content = read("gpu-engine")
    _, *epochs = content["epochs"]
    models = ("dihedral-ste", "dihedral-gumbel", "complex")
    taken: dict[tuple[str, ...], dict[str, float]] = {}
    for row in [*epochs, *content["ranking"]]:
        if row.get("precision") != "tf32":
            key = row["graph"], row["what"], str(row["dimension"])
            taken.setdefault(key, {})[row.get("model", models[0])] = row["seconds"]
    rows = [[*key, *(number(found.get(model)) for model in models)] for key, found in taken.items()]
    return markdown(["graph", "task", "2L", *models], rows) + source("gpu-engine")


def path_engine() -> str:
    """Milliseconds per training question of path models, ours and in plain operations."""
    forms = ("ours", "scatter", "geometric")
    rows = []
    for name, device in (("path-engine-cuda", "H200"), ("path-engine-cpu", "one core, CPU time")):
        for row in read(name)["rows"]:
            taken = (number(1000 * row["seconds_per_question"][form]) for form in forms)
            limit = row.get("traffic_limit")
            rows.append([row["graph"], device, *taken, number(limit and 1000 * limit)])
    header = ["graph", "device", "dihedral", "PyTorch index_add", "PyTorch Geometric scatter", "limit of memory"]
    return markdown(header, rows) + source("path-engine-cuda") + source("path-engine-cpu")


def curve(wanted: float = 0.36) -> str:
    """Seconds of training until a test MRR is reached."""
    rows = []
    for name, points in read("curve")["curves"].items():
        reached = next((f"{point['seconds']:.1f}" for point in points if point["test"] >= wanted), "not reached")
        rows.append([name, reached, f"{points[-1]['test']:.4f} after {points[-1]['seconds']:.0f} s"])
    return markdown(["model", f"seconds to a test MRR of {wanted}", "at the end"], rows) + source("curve")


def agreement() -> str:
    """How far test MRR differs between training on the reference paths and on the fast ones."""
    rows = []
    for device in ("cpu", "cuda"):
        found = read(f"agreement-{device}")["rows"]
        differences = [abs(mean(row["reference"]["test_mrr"]) - mean(row["fast"]["test_mrr"])) for row in found]
        faster = [sum(row["reference"]["seconds"]) / sum(row["fast"]["seconds"]) for row in found]
        rows.append([device, len(found), number(max(differences), 4), f"{min(faster):.1f}x to {max(faster):.1f}x"])
    header = ["device", "models and graphs", "largest difference of MRR", "speed-up"]
    return markdown(header, rows) + source("agreement-cpu") + source("agreement-cuda")


def serving() -> str:
    content = read("serving")
    rows = []
    for row in content["rows"]:
        rate = f"{row['asked_per_second']:.0f} per second" if row["asked_per_second"] else "unlimited"
        batching = "in batches" if row["at_once"] > 1 else "one by one"
        rows.append([batching, row["clients"], rate, f"{row['answered_per_second']:.0f}", f"{row['p50_ms']:.0f}",
                     f"{row['p99_ms']:.0f}"])  # fmt: skip
    header = ["processing", "clients", "request rate", "answers per second", "median ms", "p99 ms"]
    text = f"{content['entities']:,} entities, 2L = {content['dimension']}.\n\n"
    return text + markdown(header, rows) + source("serving")


def serving_paths() -> str:
    """Path models, in batches."""
    rows = []
    for name in ("serving-paths-fb15k-237-2000", "serving-paths-wn18rr"):
        content = read(name)
        for row in content["rows"]:
            if row["at_once"] > 1:
                rate = f"{row['asked_per_second']:.0f} per second" if row["asked_per_second"] else "unlimited"
                times = row["answered_per_second"], row["p50_ms"], row["p99_ms"]
                rows.append([content["graph"], row["clients"], rate, *(f"{value:.0f}" for value in times),
                             f"{row['cpu_ms_per_request']:.1f}"])  # fmt: skip
    header = ["graph", "clients", "request rate", "answers per second", "median ms", "p99 ms", "CPU ms per answer"]
    return markdown(header, rows) + source("serving-paths-fb15k-237-2000") + source("serving-paths-wn18rr")


def everyday() -> str:
    rdf, first = read("rdf"), read("first-steps")
    opened, search = read("big-graph"), read("name-search")
    total = sum(step["seconds"] for step in first["steps"])
    rows = [
        [f"from `pip install` to a prediction, {first['facts']:,} facts", f"{total:.0f} s"],
        [f"reading {rdf['triples']:,} N-Triples", f"{rdf['seconds']:.2f} s"],
        *([f"reading {WIKIDATA5M}, {row['from']}", f"{row['seconds']:.0f} s, {row['peak_mb']:.0f} MB"]
          for row in opened["reading"][:1]),
        *([f"opening a model of {row['entities']:,} entities", f"{row['seconds_to_open']:.3f} s"]
          for row in opened["opening"][-1:]),
        [f"search among {search['names']:,} names, 99th percentile", f"{search['milliseconds']['p99']:.0f} ms"],
    ]  # fmt: skip
    names = ("first-steps", "rdf", "big-graph", "name-search")
    return markdown(["task", "time"], rows) + f"\n*{', '.join(f'`results/{name}.json`' for name in names)}.*\n"


def large() -> str:
    """One GPU at the size of Wikidata5M."""
    content = read("scale")
    size, rows = content["softmax"][0], []
    for row in (content["softmax"][0], content["sampled"][0]):  # other estimators take as long
        rows.append([f"epoch, {OBJECTIVES[row['objective']]}, {row['model']}", duration(row["epoch_seconds"]),
                     f"{row['triples_a_second']:,.0f} triples", f"{row['peak_gib']:.1f} GiB"])  # fmt: skip
    for row in content["ranking"][-1:]:
        ranks = 2 * row["triples_ranked"]
        rows.append([f"{ranks:,} ranks, tiles of {row['memory_mb']:,} MiB", duration(row["seconds"]),
                     f"{ranks / row['seconds']:,.0f} ranks", f"{row['peak_gib']:.1f} GiB"])  # fmt: skip
    for row in content["top"][::2]:
        rows.append([f"top 10, batch of {row['questions_at_once']:,}", duration(row["seconds"]),
                     f"{row['questions_a_second']:,.0f} questions", ""])  # fmt: skip
    text = (
        f"A generated graph with {size['entities']:,} entities, {size['relations']} relations and {size['triples']:,} "
        f"triples, 2L = {size['dimension']}.\nTails and relations follow Zipf's law. Full softmax is extrapolated from "
        f"{size['steps_measured']} steps.\n\n"
    )
    return text + markdown(["task", "time", "per second", "GPU memory"], rows) + source("scale")


def capacity() -> str:
    """Entities that fit on one device, by the fitted cost model."""
    content = read("scale")
    rows = [[name, *(f"{max_entities(content, objective, memory) / 1e6:.0f} million" for objective in OBJECTIVES)]
            for name, memory in GPUS.items()]  # fmt: skip
    fitted, held_out = worst_errors(content)
    text = f"The model is off by at most {fitted:.1%} on the fitted sizes and by {held_out:.1%} on a held-out size.\n\n"
    return text + markdown(["GPU memory", *OBJECTIVES.values()], rows)


def duration(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.1f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min"
