"""Training of path models: what they learn, that runs resume exactly, and that stored models answer the same."""

from __future__ import annotations

import pytest
import torch

import dihedral as dh
from dihedral import DihedralError, Graph, Recipe
from dihedral.graph import make_family
from dihedral.learn.loop import Interrupted
from dihedral.learn.path_trainer import PathTrainer

RECIPE = Recipe(
    model="dihedral-argmax", objective="paths", K=8, dimension=8, steps=3, batch_size=32, epochs=4, relation_lr=0.01,
    relation_init=0.5, validate_every=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def family() -> Graph:
    return make_family(60)


@pytest.fixture(scope="module")
def trained(family, tmp_path_factory):
    """A predictor, and the folder that it is stored in."""
    folder = tmp_path_factory.mktemp("paths") / "model"
    return dh.train(family, RECIPE, out=folder, progress=False), folder


def parameters(run: PathTrainer) -> list[torch.Tensor]:
    return [each.detach().clone() for each in run.model.parameters()]


def test_a_path_model_learns_what_relations_compose_to(trained):
    predictor, _ = trained
    untrained = dh.train(predictor.graph, RECIPE.replace(epochs=1, facts_per_epoch=1), progress=False)
    assert dh.evaluate(predictor).mrr > 2 * dh.evaluate(untrained).mrr


def test_a_stored_path_model_gives_the_same_scores(trained):
    predictor, folder = trained
    loaded = dh.load(folder)
    triples = torch.from_numpy(predictor.graph.test).long()
    assert torch.equal(loaded.scorer.score(triples), predictor.scorer.score(triples))
    assert loaded.recipe == predictor.recipe
    assert not list(folder.glob("entities*.safetensors"))


def test_a_stopped_run_resumes_bit_by_bit(family, tmp_path):
    whole = PathTrainer(family, RECIPE)
    whole.run()

    def stop(event):
        if event["event"] == "epoch" and event["epoch"] == 2:
            raise Interrupted

    stopped = PathTrainer(family, RECIPE, out=tmp_path, checkpoint_minutes=0, callback=stop)
    with pytest.raises(Interrupted):
        stopped.run()
    stopped.save_checkpoint()
    resumed = PathTrainer(family, RECIPE, out=tmp_path)
    resumed.resume()
    resumed.run()
    for one, other in zip(parameters(whole), parameters(resumed), strict=True):
        assert torch.equal(one, other)


def test_the_best_parameters_on_valid_are_kept(family):
    run = PathTrainer(family, RECIPE.replace(epochs=2))
    run.run()
    assert run.parameters.best is not None
    kept = run.result().scorer.model
    torch.testing.assert_close(kept.vectors.detach(), run.parameters.best["vectors"])
    assert kept.relations.codes.shape == (family.num_relations, 4)


def test_an_epoch_can_have_a_part_of_the_facts(family):
    events = []
    run = PathTrainer(family, RECIPE.replace(epochs=1, facts_per_epoch=64), callback=events.append)
    run.run()
    assert sum(event["event"] == "step" for event in events) == 2


@pytest.mark.parametrize("settings", [{"entity_lr": 0.2}, {"negatives": 5}, {"regulariser_weight": 0.1}])
def test_settings_of_entity_vectors_are_refused(settings):
    with pytest.raises(DihedralError, match=f"{next(iter(settings))} is .* objective 'paths'"):
        RECIPE.replace(**settings)


def test_models_without_blocks_are_refused():
    with pytest.raises(DihedralError, match="model is 'rescal' with objective 'paths'"):
        Recipe(model="rescal", objective="paths")


def test_options_for_tables_are_refused_before_training(family):
    with pytest.raises(DihedralError, match="a path model is stored whole"):
        dh.train(family, RECIPE, shard_mb=1, progress=False)


def test_what_needs_entity_vectors_says_so(trained):
    predictor, _ = trained
    with pytest.raises(DihedralError, match="needs a model with entity vectors"):
        predictor.export("vectors.npz")
