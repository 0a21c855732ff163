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
from dihedral.evaluation import Evaluator
from dihedral.io.files import lock_folder
from dihedral.learn.loop import Interrupted
from dihedral.scoring.path_scorer import PathScorer
from dihedral.store.card import model_card
from dihedral.store.folder import describe
from dihedral.store.manifest import read_manifest
from dihedral.store.trained import History
from dihedral.update.update import update_folder

NEW = [("zoe", "sibling", "man_0001"), ("man_0001", "sibling", "zoe"), ("zoe", "parent", "man_0003")]
OPTIONS = {"dimension": 16, "epochs": 4, "progress": False, "device": "cpu"}


def test_vectors_of_known_entities_and_codes_stay_bit_identical(predictor):
    updated = predictor.update(add=[*NEW, ("man_0001", "sibling", "man_0003")])
    known = predictor.graph.num_entities
    assert torch.equal(updated.model.entities[:known], predictor.model.entities)
    assert torch.equal(updated.model.codes, predictor.model.codes)
    version = updated.history.latest
    assert (version.added, version.new_entities, version.new_relations, version.epochs) == (4, 1, 0, 0)


def test_the_given_predictor_stays_as_it_is(predictor):
    before, facts = predictor.model.entities.clone(), predictor.graph.num_triples
    predictor.update(add=NEW)
    assert torch.equal(predictor.model.entities, before) and predictor.graph.num_triples == facts
    assert not predictor.history.versions


def test_entities_that_arrive_in_several_updates_are_placed_as_if_they_came_at_once(predictor):
    first = predictor.update(add=NEW[:1])
    second = first.update(add=[*NEW[1:], ("yan", "sibling", "zoe")])
    at_once = predictor.update(add=[*NEW, ("yan", "sibling", "zoe")])
    assert torch.equal(second.model.entities, at_once.model.entities)
    zoe = predictor.graph.num_entities
    assert not torch.equal(second.model.entities[zoe], first.model.entities[zoe])


@pytest.mark.parametrize(
    "recipe",
    [
        dh.Recipe(model="dihedral-ste", dimension=8, epochs=3),
        dh.Recipe(model="dihedral-ste", K=6, dimension=8, epochs=3, relation_scale=True, objective="softmax"),
        dh.Recipe(
            model="dihedral-gumbel", levels="1, 1/2, 0", dimension=8, epochs=3, objective="softmax", candidates=9
        ),
        dh.Recipe(model="complex", reciprocal=True, dimension=8, epochs=3, objective="softmax"),
        dh.Recipe(model="rescal", dimension=8, epochs=3),
        dh.Recipe(model="transe", dimension=8, epochs=3),
    ],
    ids=lambda recipe: f"{recipe.model}-{recipe.objective}",
)
def test_every_kind_of_model_takes_entities_and_relations(family, recipe, tmp_path):
    trained = dh.train(family, recipe, progress=False, device="cpu")
    updated = trained.update(add=[*NEW, ("zoe", "likes", "man_0003")], progress=False, calibrate=False)
    assert updated.history.latest.trained_again and updated.graph.num_relations == family.num_relations + 1
    updated.save(tmp_path / "model")
    fact = ("zoe", "likes", "man_0003")
    assert dh.load(tmp_path / "model").score(*fact) == pytest.approx(updated.score(*fact), abs=1e-5)


@pytest.mark.parametrize("kind", ["vectors", "paths"])
def test_a_model_that_is_trained_again_is_the_one_that_never_saw_the_removed_facts(family, path_predictor, kind):
    trained = path_predictor if kind == "paths" else dh.train(family, "demo/family", seed=3, **OPTIONS)
    graph = trained.graph
    options = {"retrain": True} if kind == "paths" else {}
    updated = trained.update(remove=list(graph.names_of(graph.train[::10])), progress=False, calibrate=False, **options)
    expected = dh.train(updated.graph, trained.recipe, seed=trained.metrics["seed"], progress=False, device="cpu")
    triples = torch.from_numpy(graph.known).long()
    assert torch.equal(updated.scorer.score(triples), expected.scorer.score(triples))
    assert updated.metrics["test"] == expected.metrics["test"]
    version = updated.history.latest
    assert version.trained_again and version.test_mrr == pytest.approx(dh.evaluate(updated).mrr, abs=1e-4)
    assert updated.history.since_training == (version,)


def test_a_model_is_trained_again_on_request_without_any_change(family):
    trained = dh.train(family, "demo/family", **OPTIONS).update(add=NEW)
    again = trained.update(retrain=True, progress=False, calibrate=False)
    assert again.graph.fingerprint == trained.graph.fingerprint and again.history.latest.added == 0
    assert not torch.equal(again.model.entities, trained.model.entities)
    with pytest.raises(DihedralError, match="nothing would change"):
        trained.update()


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


def test_removing_only_facts_that_were_not_trained_on_changes_no_row(predictor):
    updated = predictor.update(remove=list(predictor.graph.names_of(predictor.graph.test[:2])), progress=False)
    version = updated.history.latest
    assert version.removed == 2 and not version.trained_again
    assert torch.equal(updated.model.entities, predictor.model.entities)


def test_a_model_without_a_recipe_is_refused(predictor):
    bare = dh.Predictor(dh.TrainedModel(predictor.model, predictor.graph))
    with pytest.raises(DihedralError, match="has no recipe"):
        bare.update(retrain=True)


def test_an_update_that_is_interrupted_returns_nothing(predictor):
    def stop(event):
        if event["event"] == "step":
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, Interrupted)):
        predictor.update(retrain=True, progress=False, callback=stop)


def test_a_link_below_the_model_folder_is_refused_and_nothing_outside_is_touched(predictor, tmp_path):
    predictor.save(tmp_path / "model")
    home = tmp_path / "home"
    home.mkdir()
    for name in (".key", "checkpoint.json"):
        (home / name).write_text("mine")
    (tmp_path / "model" / "training").symlink_to(home)
    model = {path: path.read_bytes() for path in (tmp_path / "model").iterdir() if path.is_file()}
    with pytest.raises(DihedralError, match="training' is a symbolic link, which is not followed; remove it"):
        update_folder(tmp_path / "model", add=NEW)
    assert [path.read_text() for path in home.iterdir()] == ["mine", "mine"]
    assert {path: path.read_bytes() for path in (tmp_path / "model").iterdir() if path.is_file()} == model


def test_an_updated_folder_keeps_how_it_was_stored(family, tmp_path):
    options = {"epochs": 2, "progress": False, "device": "cpu", "dimension": 16, "dtype": "float16", "shard_mb": 0.005}
    dh.train(family, "demo/family", out=tmp_path / "model", **options)
    before, shards = describe(tmp_path / "model"), len(list((tmp_path / "model").glob("entities-*")))
    update_folder(tmp_path / "model", add=NEW, progress=False)
    assert describe(tmp_path / "model")["dtype"] == before["dtype"] == "float16"
    assert len(list((tmp_path / "model").glob("entities-*"))) == shards > 1


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


def test_versions_name_their_parents_and_sizes(predictor):
    one = predictor.update(add=NEW[:1])
    versions = one.update(add=NEW[1:2]).history.versions
    assert [each.version for each in versions] == [0, 1, 2] and [each.parent for each in versions] == [None, 0, 1]
    count = predictor.graph.num_entities
    assert [each.entities for each in versions] == [count, count + 1, count + 1]


def test_labels_stay_when_entities_arrive(predictor, tmp_path):
    graph = predictor.graph.with_labels({"man_0001": "Tom", "sibling": "brother or sister"})
    labelled = dh.Predictor(replace(predictor.trained, graph=graph))
    facts = [("zoe", "brother or sister", "Tom")]
    for grown in (labelled.update(add=facts), labelled.update(add=facts, retrain=True, progress=False)):
        grown.save(tmp_path / "model", overwrite=True)
        names = dh.load(tmp_path / "model").graph.entities
        assert names.shown("man_0001") == "Tom (man_0001)" and names.id("Tom") == graph.entities.id("man_0001")
        assert names.label("zoe") == "" and names.id("zoe") == graph.num_entities


def test_the_log_of_a_model_that_was_replaced_is_gone(family, tmp_path):
    dh.train(family, "demo/family", out=tmp_path / "model", **OPTIONS)
    log = tmp_path / "model" / "training" / "log.jsonl"
    update_folder(tmp_path / "model", add=NEW)
    assert log.exists()
    update_folder(tmp_path / "model", retrain=True, progress=False, calibrate=False)
    assert not log.exists()


@pytest.mark.thorough
@pytest.mark.xfail(strict=True, reason="they are too low: 0.57 where 0.87 hold")
def test_probabilities_of_a_new_relation_are_near_the_share_of_its_proposals_that_hold(benchmark_graph):
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add": [("zoe", "sibling", None)]}, "has None for a name"),
        ({"add": ("zoe", "sibling", "man_0001")}, "give a list of triples"),
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
        assert any(each.head == "zoe" and each.known for each in predictor.predict(tail="man_0001", relation="sibling"))


def test_a_path_model_answers_as_if_it_had_never_seen_a_removed_fact(path_predictor):
    graph = path_predictor.graph
    gone = list(graph.names_of(graph.train[::10]))
    updated = path_predictor.update(remove=gone)
    never = graph.replace(train=np.delete(graph.train, np.s_[::10], axis=0))
    other = PathScorer(path_predictor.scorer.model, never.train_index)
    triples = torch.from_numpy(graph.known).long()
    assert torch.equal(updated.scorer.score(triples), other.score(triples))


@pytest.mark.thorough
def test_removed_facts_rank_in_a_path_model_as_in_one_that_never_saw_them():
    """Membership inference: how often a removed fact ranks better than in the other model; 0.5 is chance."""
    graph = dh.make_family(200, seed=0)
    recipe = dh.Recipe(
        model="dihedral-argmax", objective="paths", K=8, dimension=8, steps=3, batch_size=32, epochs=6,
        relation_lr=0.01, relation_init=0.5, update="gate",
    )  # fmt: skip
    gone = graph.train[::10]
    updated = dh.train(graph, recipe, progress=False, device="cpu").update(remove=list(graph.names_of(gone)))
    never = dh.train(updated.graph, recipe, progress=False, device="cpu")
    ranks = [
        Evaluator(updated.graph, "removed", triples=gone, also_known=graph.known)(each.scorer).both.realistic
        for each in (updated, never)
    ]
    better, equal = (compare(ranks[0][:, None], ranks[1]).mean() for compare in (np.less, np.equal))
    assert abs(better + equal / 2 - 0.5) <= 0.02


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
