"""Updates: what changes, what stays bit-identical, what is forgotten, and what is refused."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.io.locks import lock_folder
from dihedral.learn.loop import Interrupted
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.card import model_card
from dihedral.store.folder import describe
from dihedral.store.manifest import read_manifest
from dihedral.store.trained import History, Version
from dihedral.update.lineage import advice
from dihedral.update.update import update_folder

NEW = [("zoe", "sibling", "man_0001"), ("man_0001", "sibling", "zoe"), ("zoe", "likes", "man_0003")]


def rows_of(predictor, names):
    return predictor.model.entities[predictor.graph.entities.ids(list(names)).astype(np.int64)]


def test_rows_that_no_change_touches_and_known_codes_stay_bit_identical(predictor):
    updated = predictor.update(add=[*NEW, ("man_0001", "sibling", "man_0003")], progress=False)
    untouched = [name for name in predictor.graph.entities if name not in ("man_0001", "man_0003")]
    assert torch.equal(rows_of(updated, untouched), rows_of(predictor, untouched))
    assert not torch.equal(rows_of(updated, ["man_0001"]), rows_of(predictor, ["man_0001"]))
    known = predictor.graph.num_relations
    assert torch.equal(updated.model.codes[:known], predictor.model.codes)
    version = updated.history.latest
    assert (version.rows_changed, version.rows) == (2, predictor.graph.num_entities)
    assert (version.added, version.new_entities, version.new_relations) == (4, 1, 1)


def test_a_row_with_more_facts_moves_less(predictor):
    """A new fact is a smaller part of what such a row is to fit."""
    degrees = predictor.graph.train_index.degrees.numpy()
    few, many = (predictor.graph.entities[int(i)] for i in (degrees.argmin(), degrees.argmax()))
    updated = predictor.update(add=[(few, "likes", many)], progress=False, calibrate=False)
    moved = (rows_of(updated, [few, many]) - rows_of(predictor, [few, many])).norm(dim=1)
    assert degrees.max() > 1.5 * degrees.min() and moved[0] > moved[1] > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("objective", ["softmax", "logistic"])
def test_an_update_runs_as_captured_steps(family, objective, monkeypatch):
    monkeypatch.setattr("dihedral.learn.trainer.MIN_CAPTURED", 1)
    recipe = dh.Recipe(model="dihedral-gumbel", dimension=32, epochs=30, batch_size=8, objective=objective)
    trained = dh.train(family, recipe, progress=False, device="cuda")
    names = list(family.entities)[:12]
    add = [*NEW, *((names[i], "likes", names[i + 1]) for i in range(11))]
    drift = trained.update(add=add, progress=False, calibrate=False).history.latest.drift
    assert drift["added_mrr_after"] > 0.2


def test_the_given_predictor_stays_as_it_is(predictor):
    before, facts = predictor.model.entities.clone(), predictor.graph.num_triples
    predictor.update(add=NEW[:1], remove=[next(predictor.graph.names_of(predictor.graph.train))], progress=False)
    assert torch.equal(predictor.model.entities, before) and predictor.graph.num_triples == facts
    assert not predictor.history.versions


def test_added_facts_are_learned(predictor):
    graph = predictor.graph
    known = set(graph.names_of(graph.known))
    strangers = [("man_0000", "sibling", name) for name in graph.entities if name.startswith("woman")]
    new = [fact for fact in strangers if fact not in known][:4]
    drift = predictor.update(add=new, epochs=40, progress=False).history.latest.drift
    assert drift["added_mrr_after"] > drift["added_mrr_before"] + 0.1


@pytest.mark.parametrize(
    "recipe",
    [
        dh.Recipe(model="dihedral-ste", dimension=8, epochs=3),
        dh.Recipe(model="dihedral-ste", K=6, dimension=8, epochs=3, relation_scale=True, objective="softmax"),
        dh.Recipe(
            model="dihedral-gumbel", levels="1, 1/2, 0", dimension=8, epochs=3, objective="softmax", candidates=9
        ),
        dh.Recipe(model="cyclic-gumbel", dimension=8, epochs=3),
        dh.Recipe(model="complex", reciprocal=True, dimension=8, epochs=3, objective="softmax"),
        dh.Recipe(model="orthogonal", dimension=8, epochs=3),
        dh.Recipe(model="rescal", dimension=8, epochs=3),
        dh.Recipe(model="transe", dimension=8, epochs=3),
    ],
    ids=lambda recipe: f"{recipe.model}-{recipe.objective}",
)
def test_every_kind_of_model_takes_entities_and_relations(family, recipe, tmp_path):
    trained = dh.train(family, recipe, progress=False, device="cpu")
    updated = trained.update(add=NEW, progress=False, calibrate=False, epochs=2)
    count = family.num_relations
    old, new = trained.scorer.operators, updated.scorer.operators
    if trained.model.relations.is_reciprocal:
        assert torch.equal(new[count + 1 : 2 * count + 1], old[count:])
    assert torch.equal(new[:count], old[:count])
    updated.save(tmp_path / "model")
    assert dh.load(tmp_path / "model").score(*NEW[2]) == pytest.approx(updated.score(*NEW[2]), abs=1e-5)


def test_a_removed_fact_leaves_the_graph_and_its_rows_start_over(predictor):
    fact = next(predictor.graph.names_of(predictor.graph.train))
    updated = predictor.update(remove=[fact], progress=False)
    version = updated.history.latest
    assert fact not in set(updated.graph.names_of(updated.graph.known))
    assert version.removed == 1 and "trained on removed facts" in version.not_undone
    changed = (updated.model.entities != predictor.model.entities).any(dim=1)
    assert {predictor.graph.entities.id(name) for name in (fact[0], fact[2])} <= set(np.flatnonzero(changed))
    similarity = torch.nn.functional.cosine_similarity(updated.model.entities, predictor.model.entities)
    assert (similarity[changed] < 0.9).all() and changed.sum() < len(changed) / 2  # they were drawn and trained again


def test_if_most_rows_start_over_the_model_is_the_one_that_never_saw_the_removed_facts(family):
    options = {"dimension": 16, "epochs": 4, "seed": 3, "progress": False, "device": "cpu"}
    trained = dh.train(family, "demo/family", **options)
    removed = list(family.names_of(family.train[::10]))
    updated = trained.update(remove=removed, progress=False, calibrate=False)
    expected = dh.train(updated.graph, "demo/family", **options)
    assert torch.equal(updated.model.entities, expected.model.entities)
    assert torch.equal(updated.model.codes, expected.model.codes)
    version = updated.history.latest
    assert version.trained_again and version.advice is None and version.not_undone is None
    assert updated.metrics["test"] == expected.metrics["test"]


@pytest.mark.thorough
def test_rows_that_start_over_do_not_push_down_the_answers_of_other_facts(benchmark_graph):
    graph = benchmark_graph("umls")
    trained = dh.train(graph, "demo/umls", dimension=60, epochs=20, progress=False, device="cpu")
    gone = list(graph.names_of(graph.train[:10]))
    version = trained.update(remove=gone, progress=False, calibrate=False).history.latest
    assert version.test_mrr > version.before["test_mrr"] - 0.02


def test_the_folder_of_an_updated_model_holds_no_removed_fact(predictor, tmp_path):
    """An entity that occurs in removed facts only keeps its name, but no file holds a fact of it."""
    grown = predictor.update(add=[("zoe", "sibling", "man_0001")], progress=False, calibrate=False)
    grown.save(tmp_path / "model")
    grown.update(remove=[("zoe", "sibling", "man_0001")], progress=False).save(tmp_path / "model", overwrite=True)
    loaded = dh.load(tmp_path / "model")
    zoe = loaded.graph.entities.id("zoe")
    assert not (loaded.graph.known[:, [0, 2]] == zoe).any()
    names = ("entities", "words")  # the files that hold names
    files = [path for path in (tmp_path / "model").iterdir() if not path.name.startswith(names) or ".safe" in path.name]
    written = [path.read_bytes() for path in files]
    assert len(written) > 5 and not any(b"zoe" in content for content in written)


def test_an_update_continues_with_the_state_of_the_optimiser(family, tmp_path):
    options = {"epochs": 5, "progress": False, "device": "cpu", "dimension": 16}
    dh.train(family, "demo/family", out=tmp_path / "model", keep_optimiser=True, **options)
    trained = dh.load(tmp_path / "model")
    name = "relations.logits"
    assert trained.optimiser.keys() == {name} and len(trained.optimiser[name]) == family.num_relations
    updated = trained.update(add=NEW, relations=True, progress=False)
    updated.save(tmp_path / "again", optimiser=True)
    again = dh.load(tmp_path / "again")
    assert len(again.optimiser[name]) == family.num_relations + 1
    assert (again.optimiser[name][:-1] >= trained.optimiser[name]).all()
    assert again.update(add=[("zoe", "child", "man_0002")], relations=True, progress=False).graph.num_entities == 41


def test_relations_are_trained_only_with_the_state_of_the_optimiser(predictor):
    with pytest.raises(DihedralError, match="trained with --keep-optimiser"):
        predictor.update(add=NEW, relations=True)


@pytest.mark.thorough
@pytest.mark.parametrize("dimension", [100, 200, 400])
def test_facts_of_known_entities_are_learned_and_cost_others_little(benchmark_graph, dimension):
    """The more coordinates there are, the more a row that follows new facts loses of what it had learned."""
    umls = benchmark_graph("umls")
    names = list(umls.names_of(umls.train))
    chosen = set(np.random.default_rng(1).permutation(len(names))[: len(names) // 20].tolist())
    added = [names[i] for i in sorted(chosen)]
    known = np.array([i not in chosen for i in range(len(names))])
    base = dh.train(
        umls.replace(train=umls.train[known]), "demo/umls", dimension=dimension, epochs=20, progress=False, device="cpu"
    )
    updated = base.update(add=added, progress=False, calibrate=False)
    version = updated.history.latest
    assert version.valid_mrr >= version.before["valid_mrr"] - 0.01
    assert version.test_mrr >= version.before["test_mrr"] - 0.01
    drift = version.drift
    assert drift["added_mrr_after"] >= drift["added_mrr_before"] + 0.005


def test_latents_are_kept_without_an_optimiser(family):
    trained = dh.train(family, "demo/family", epochs=2, progress=False, device="cpu")
    assert trained.optimiser is None and trained.latents
    updated = trained.update(add=NEW, progress=False, calibrate=False)
    for name, values in trained.latents.items():
        assert torch.equal(updated.latents[name][: len(values)], values)
    assert trained.update(add=NEW[:1], progress=False, calibrate=False).latents.keys() == trained.latents.keys()


def test_a_new_relation_leaves_the_latents_of_known_ones(family, tmp_path):
    options = {"epochs": 5, "progress": False, "device": "cpu", "dimension": 16, "out": tmp_path / "model"}
    dh.train(family, "demo/family", keep_optimiser=True, **options)
    trained = dh.load(tmp_path / "model")
    updated = trained.update(add=NEW, progress=False, calibrate=False)
    for name, values in trained.latents.items():
        assert torch.equal(updated.latents[name][: len(values)], values)


def test_removing_only_facts_that_were_not_trained_on_changes_no_row(predictor):
    updated = predictor.update(remove=list(predictor.graph.names_of(predictor.graph.test[:2])), progress=False)
    version = updated.history.latest
    assert (version.removed, version.rows_changed) == (2, 0)
    assert torch.equal(updated.model.entities, predictor.model.entities)


@pytest.mark.thorough
def test_a_few_facts_of_entities_with_many_leave_the_model_as_good(benchmark_graph):
    graph = benchmark_graph("umls")
    trained = dh.train(graph, "demo/umls", dimension=60, epochs=20, progress=False, device="cpu")
    hubs = [graph.entities[i] for i in graph.train_index.degrees.argsort(descending=True)[:4].tolist()]
    new = [(hubs[0], "ingredient_of", hubs[1]), (hubs[2], "ingredient_of", hubs[3])]
    version = trained.update(add=new, progress=False, calibrate=False).history.latest
    assert version.test_mrr > version.before["test_mrr"] - 0.01


def test_a_model_without_a_recipe_is_refused(predictor):
    bare = dh.Predictor(dh.TrainedModel(predictor.model, predictor.graph))
    with pytest.raises(DihedralError, match="has no recipe"):
        bare.update(add=NEW)


def test_an_update_that_is_interrupted_returns_nothing(predictor):
    def stop(event):
        if event["event"] == "step":
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, Interrupted)):
        predictor.update(add=NEW, progress=False, callback=stop)


@pytest.mark.parametrize("stopped_after", [2, 31])
def test_an_update_that_was_stopped_is_resumed_to_the_same_model(predictor, tmp_path, stopped_after):
    def stop(event):
        if event["event"] == "epoch" and event["epoch"] == stopped_after:
            signal.raise_signal(signal.SIGINT)

    for name in ("whole", "stopped"):
        predictor.save(tmp_path / name)
    facts = [*NEW, ("man_0001", "sibling", "man_0003")]
    whole = update_folder(tmp_path / "whole", add=facts, progress=False)
    before = (tmp_path / "stopped" / "model.json").read_bytes()
    with pytest.raises(Interrupted):
        update_folder(tmp_path / "stopped", add=facts, progress=False, callback=stop)
    assert (tmp_path / "stopped" / "model.json").read_bytes() == before
    for other in ({"add": NEW[:1]}, {"add": facts, "epochs": 3}):
        with pytest.raises(DihedralError, match="was made with another model or change; resume with the same graph"):
            update_folder(tmp_path / "stopped", **other, progress=False, resume=True)
    with pytest.raises(DihedralError, match="only in case"):
        update_folder(tmp_path / "stopped", add=[("MAN_0001", "sibling", "man_0003")], progress=False)
    assert (tmp_path / "stopped" / "update").exists()
    epochs = []
    resumed = update_folder(tmp_path / "stopped", add=facts, progress=False, resume=True, callback=epochs.append)
    assert next(each["epoch"] for each in epochs if each["event"] == "epoch") == stopped_after + 1
    assert torch.equal(resumed.model.entities, whole.model.entities)
    assert not (tmp_path / "stopped" / "update").exists()
    with pytest.raises(DihedralError, match="no checkpoint to resume"):
        update_folder(tmp_path / "stopped", remove=NEW[:1], progress=False, resume=True)


def test_checkpoints_leave_other_files_of_their_folder_alone(predictor, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    predictor.update(add=NEW, progress=False, calibrate=False, checkpoints=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(DihedralError, match="give `checkpoints`"):
        predictor.update(add=NEW, progress=False, resume=True)


@pytest.mark.parametrize("link", ["update", "update/training"])
def test_a_link_below_the_model_folder_is_refused_and_nothing_outside_is_touched(predictor, tmp_path, link):
    predictor.save(tmp_path / "model")
    home = tmp_path / "home"
    for name in (".profile", "training/.key", "training/checkpoint.json"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("mine")
    place = tmp_path / "model" / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(home)
    model = {path: path.read_bytes() for path in (tmp_path / "model").iterdir() if path.is_file()}
    with pytest.raises(DihedralError, match=f"{link}' is a symbolic link, which is not followed; remove it"):
        update_folder(tmp_path / "model", add=NEW, progress=False)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) == 3 and all(path.read_text() == "mine" for path in files)
    assert {path: path.read_bytes() for path in (tmp_path / "model").iterdir() if path.is_file()} == model


def test_an_updated_folder_keeps_how_it_was_stored(family, tmp_path):
    options = {"epochs": 2, "progress": False, "device": "cpu", "dimension": 16, "dtype": "float16", "shard_mb": 0.005}
    dh.train(family, "demo/family", out=tmp_path / "model", keep_optimiser=True, **options)
    before, shards = describe(tmp_path / "model"), len(list((tmp_path / "model").glob("entities-*")))
    update_folder(tmp_path / "model", add=NEW, progress=False)
    assert describe(tmp_path / "model")["dtype"] == before["dtype"] == "float16"
    assert len(list((tmp_path / "model").glob("entities-*"))) == shards > 1
    assert dh.load(tmp_path / "model").optimiser is not None


KILLED_BEFORE_OLD_FILES_ARE_REMOVED = """
import os, signal, sys
from pathlib import Path
from dihedral.store import folder
from dihedral.update.update import update_folder

folder.write_card = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
update_folder(Path(sys.argv[1]), remove=[tuple(sys.argv[2:5])], progress=False, device="cpu")
"""


def test_nothing_of_a_removed_fact_is_left_by_a_killed_update_once_the_model_is_opened(python, predictor, tmp_path):
    predictor.save(tmp_path)
    gone = next(predictor.graph.names_of(predictor.graph.train))
    (tmp_path / "notes.txt").write_text("mine")
    assert python("-c", KILLED_BEFORE_OLD_FILES_ARE_REMOVED, tmp_path, *gone).returncode == -signal.SIGKILL
    assert (tmp_path / "known.arrow").exists()  # with the fact
    updated = dh.load(tmp_path)
    assert gone not in updated.graph.names_of(updated.graph.known)
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {*read_manifest(tmp_path).names, "model.json", "README.md", "notes.txt"}
    assert (tmp_path / "README.md").read_text() == model_card(updated.trained)


def test_opening_a_model_leaves_a_save_that_is_not_done_alone(predictor, tmp_path):
    predictor.save(tmp_path)
    new = tmp_path / "known.save-0123abcd.arrow"
    new.write_bytes(b"half")
    with lock_folder(tmp_path, "taken"):
        dh.load(tmp_path)
        assert new.exists()
    dh.load(tmp_path)
    assert not new.exists()


def test_a_version_has_no_hash_that_a_removed_fact_could_be_guessed_from(predictor):
    gone = next(predictor.graph.names_of(predictor.graph.train))
    history = predictor.update(add=NEW, remove=[gone], progress=False, calibrate=False).history
    content = json.dumps([list(version.values()) for version in history.to_dict()["versions"]])
    assert not re.search(r"[0-9a-f]{32}", content)
    assert not any(name in content for name in (*predictor.graph.relations, *predictor.graph.entities))
    old = history.to_dict()["versions"][1] | {"removed_sha256": "0" * 64, "fingerprint": "0" * 64, "removed_of": {}}
    assert History.from_dict({"versions": [old]}).versions == history.versions[1:]  # older folders


def test_versions_name_their_parents(predictor):
    one = predictor.update(add=NEW[:1], progress=False, calibrate=False)
    two = one.update(add=NEW[1:2], progress=False, calibrate=False)
    versions = two.history.versions
    assert [each.version for each in versions] == [0, 1, 2]
    assert [each.parent for each in versions] == [None, 0, 1]
    assert versions[2].before["test_mrr"] == pytest.approx(versions[1].test_mrr, abs=0.02)


def test_training_again_is_advised_with_a_reason():
    first = Version(version=0, facts=100, valid_mrr=0.5)
    fine = Version(version=1, facts=101, added=1, valid_mrr=0.5, before={"valid_mrr": 0.5})
    assert advice([first, fine]) is None
    assert "lost 20.0% of the valid MRR" in advice([first, replace(fine, valid_mrr=0.4)])
    assert "facts changed since training" in advice([first, replace(fine, added=30)])
    again = replace(fine, facts=130, added=30, trained_again=True)
    assert advice([first, again, fine]) is None  # what came before a new training does not count


def test_labels_stay_when_entities_arrive(predictor, tmp_path):
    graph = predictor.graph.with_labels({"man_0001": "Tom", "sibling": "brother or sister"})
    labelled = dh.Predictor(replace(predictor.trained, graph=graph))
    facts = [("zoe", "brother or sister", "Tom")]
    for grown in (labelled.update(add=facts, progress=False, calibrate=False), labelled.fold_in("zoe", facts)):
        grown.save(tmp_path / "model", overwrite=True)
        names = dh.load(tmp_path / "model").graph.entities
        assert names.shown("man_0001") == "Tom (man_0001)" and names.id("Tom") == graph.entities.id("man_0001")
        assert names.label("zoe") == "" and names.id("zoe") == graph.num_entities


def test_a_new_model_is_trained_with_the_epochs_of_its_recipe(family):
    trained = dh.train(family, "demo/family", dimension=16, epochs=4, progress=False, device="cpu")
    removed = list(family.names_of(family.train[::10]))
    updated = trained.update(remove=removed, epochs=1, progress=False, calibrate=False)
    version = updated.history.latest
    assert version.trained_again and version.epochs == 4


def test_the_log_beside_an_updated_model_is_that_of_its_training(family, tmp_path):
    options = {"dimension": 16, "epochs": 4, "progress": False, "device": "cpu"}
    dh.train(family, "demo/family", out=tmp_path / "model", **options)
    log = tmp_path / "model" / "training" / "log.jsonl"
    before = log.read_text()
    update_folder(tmp_path / "model", remove=list(family.names_of(family.train[::10])), progress=False, calibrate=False)
    assert log.read_text() != before and len(log.read_text().splitlines()) == 4


def test_a_fact_of_a_new_relation_does_not_make_its_entities_answers_to_other_questions(family):
    """With sampled negatives, too: nothing in the one new fact says that they are wrong answers."""
    trained = dh.train(family, "demo/family", epochs=30, progress=False, device="cpu")
    a, b = family.entities[3], family.entities[17]
    version = trained.update(add=[(a, "likes", b)], progress=False, calibrate=False).history.latest
    assert version.drift["added_mrr_after"] > 0.5
    assert version.valid_mrr > version.before["valid_mrr"] - 0.005


def test_rows_with_a_new_relation_are_trained_on_their_other_added_facts(predictor):
    graph = predictor.graph
    a, b, c = (graph.entities[i] for i in (3, 17, 30))
    with_both = predictor.update(add=[(a, "sibling", b), (a, "likes", c)], progress=False, calibrate=False)
    drift = with_both.history.latest.drift
    assert drift["added_known_mrr_after"] > drift["added_mrr_before"]


@pytest.mark.thorough
def test_probabilities_of_a_new_relation_are_those_of_its_proposals(benchmark_graph):
    """Valid holds no fact of it, which says nothing about how many of its proposals hold."""
    graph = benchmark_graph("umls")
    facts = {split: list(graph.names_of(graph.split(split))) for split in ("train", "valid", "test")}
    name = "affects"
    rest = [[fact for fact in part if fact[1] != name] for part in facts.values()]
    base = dh.train(dh.Graph.from_names(*rest, name="umls"), "demo/umls", dimension=60, epochs=20, progress=False)
    given = [fact for fact in facts["train"] if fact[1] == name]
    asked = {fact for split in ("valid", "test") for fact in facts[split] if fact[1] == name}
    updated = base.update(add=given, progress=False)
    found = [
        answer for head in sorted({head for head, _, _ in asked})
        for answer in updated.predict(head=head, relation=name, known="exclude", top=3)
    ]  # fmt: skip
    share = np.mean([(answer.head, answer.relation, answer.tail) in asked for answer in found])
    assert np.mean([answer.probability for answer in found]) == pytest.approx(share, abs=0.2)


def test_a_row_that_an_update_placed_moves_in_the_next_one(family):
    options = {"dimension": 32, "epochs": 20, "progress": False, "device": "cpu"}
    trained = dh.train(family, "demo/family", **options)
    a, b = family.entities[3], family.entities[17]
    first = trained.update(add=[("zoe", "sibling", a)], progress=False, calibrate=False)
    second = first.update(add=[("zoe", "spouse", b), (b, "spouse", "zoe")], progress=False, calibrate=False)
    before, after = rows_of(first, ["zoe"]), rows_of(second, ["zoe"])
    assert (after - before).norm() > 0.05 * before.norm()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add": [("zoe", "sibling", None)]}, "has None for a name"),
        ({"add": ("zoe", "sibling", "man_0001")}, "give a list of triples"),
        ({"add": NEW, "epochs": "3"}, "epochs is '3'; it must be a whole number"),
        ({"add": NEW, "seed": -1}, "seed is -1"),
    ],
)
def test_invalid_arguments_are_named(predictor, options, message):
    with pytest.raises(DihedralError, match=message):
        predictor.update(**options, progress=False)


# --- path models ----------------------------------------------------------------------------------


def parameters(predictor):
    model = predictor.scorer.model
    return {**model.stored(), **model.relations.stored()}


def test_an_update_of_a_path_model_changes_the_graph_and_no_parameter(path_predictor, tmp_path):
    graph = path_predictor.graph
    gone = next(graph.names_of(graph.train))
    path_predictor.save(tmp_path / "model")
    updated = update_folder(tmp_path / "model", add=NEW[:2], remove=[gone])
    version = dh.load(tmp_path / "model").history.latest
    assert (version.added, version.removed, version.new_entities, version.epochs) == (2, 1, 1, 0)
    for predictor in (dh.Predictor(updated), dh.load(tmp_path / "model")):
        assert all(torch.equal(each, parameters(predictor)[name]) for name, each in parameters(path_predictor).items())
        assert gone not in set(predictor.graph.names_of(predictor.graph.known))
        best = [answer.tail for answer in predictor.predict(head="zoe", relation="sibling", top=5)]
        assert "man_0001" in best


def test_a_path_model_answers_as_if_it_had_never_seen_a_removed_fact(path_predictor):
    graph = path_predictor.graph
    gone = list(graph.names_of(graph.train[::10]))
    updated = path_predictor.update(remove=gone)
    never = graph.replace(train=np.delete(graph.train, np.s_[::10], axis=0))
    other = PathScorer(path_predictor.scorer.model, never.train_index)
    triples = torch.from_numpy(graph.known).long()
    assert torch.equal(updated.scorer.score(triples), other.score(triples))


def test_no_file_of_a_path_model_holds_a_removed_fact(path_predictor, tmp_path):
    grown = path_predictor.update(add=[("zoe", "sibling", "man_0001")])
    grown.save(tmp_path / "model")
    update_folder(tmp_path / "model", remove=[("zoe", "sibling", "man_0001")])
    names = ("entities", "words")  # the files that hold names
    files = [path for path in (tmp_path / "model").iterdir() if path.is_file() and not path.name.startswith(names)]
    assert len(files) > 5 and not any(b"zoe" in path.read_bytes() for path in files)
    loaded = dh.load(tmp_path / "model")
    assert not (loaded.graph.known[:, [0, 2]] == loaded.graph.entities.id("zoe")).any()


@pytest.mark.usefixtures("probabilities_of_small_graphs")
def test_a_path_model_keeps_its_probabilities_unless_they_are_to_be_fitted(path_predictor):
    calibrated = dh.Predictor(replace(path_predictor.trained, metrics=dict(path_predictor.metrics)))
    calibrated.calibrate()
    kept = calibrated.update(add=NEW[:2])
    assert kept.calibration is calibrated.calibration and "test" not in kept.metrics
    fitted = calibrated.update(add=NEW[:2], calibrate=True)
    assert fitted.calibration is not None and fitted.calibration is not calibrated.calibration
    assert "test" in fitted.metrics and fitted.history.latest.test_mrr == pytest.approx(
        dh.evaluate(fitted).mrr, abs=1e-4
    )


def test_options_of_training_are_refused_for_a_path_model(path_predictor):
    for options in ({"relations": True}, {"epochs": 3}, {"resume": True}):
        with pytest.raises(DihedralError, match="leave out relations, epochs and resume"):
            path_predictor.update(add=NEW[:2], **options)
