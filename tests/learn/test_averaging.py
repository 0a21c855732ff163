"""Averaged weights: the exponential average of the parameters at the ends of epochs is evaluated and kept."""

from __future__ import annotations

import pytest
import torch

import dihedral as dh
from dihedral import Recipe
from dihedral.errors import DihedralError
from dihedral.evaluation import Evaluator
from dihedral.learn import Trainer
from dihedral.learn.loop import Interrupted
from dihedral.scoring.embedding import EmbeddingScorer

EPOCHS = 5
SOFTMAX = Recipe(
    model="dihedral-gumbel", objective="softmax", dimension=8, batch_size=32, epochs=EPOCHS, entity_lr=0.3,
    relation_lr=1.0, averaging=0.7, validate_every=0,
)  # fmt: skip
LOGISTIC = SOFTMAX.replace(model="dihedral-ste", objective="logistic", negatives=4)
RECIPES = pytest.mark.parametrize("recipe", [SOFTMAX, LOGISTIC], ids=["softmax", "logistic"])


class Stop(Exception):  # noqa: N818
    """A run stopped by its callback, as by a crash."""


def parameters(trainer):
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


def epoch_by_epoch(graph, recipe):
    """A run and the parameters at the end of each of its epochs."""
    trainer, states = Trainer(graph, recipe), []
    for _ in range(recipe.epochs):
        assert trainer.run_epoch()
        states.append(parameters(trainer))
    return trainer, states


def exponential_average(states, decay):
    """A running average from 0 with Adam's bias correction."""
    averages = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in states[0].items()}
    for state in states:
        averages = {name: decay * averages[name] + (1 - decay) * state[name].double() for name in averages}
    return {name: average / (1 - decay ** len(states)) for name, average in averages.items()}


def assert_close(found, expected):
    assert set(found) == set(expected)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor.double(), expected[name], atol=1e-5, rtol=1e-5)


@RECIPES
@pytest.mark.parametrize("decay", [0.3, 0.9])
def test_the_kept_model_is_the_exponential_average_over_the_epochs(family, recipe, decay):
    trainer, states = epoch_by_epoch(family, recipe.replace(averaging=decay))
    expected = exponential_average(states, decay)
    assert_close(trainer.parameters.average, expected)
    average = {name: tensor.clone() for name, tensor in trainer.parameters.average.items()}
    model = trainer.best_model()
    assert torch.equal(model.entities, average["entities"])
    assert not torch.equal(model.entities, states[-1]["entities"])
    ((name, latents),) = trainer.model.relations.named_parameters()
    assert torch.equal(latents, average[f"relations.{name}"])
    if name == "logits":
        assert torch.equal(model.codes, expected["relations.logits"].argmax(1).to(torch.uint8))
    else:
        assert torch.equal(model.relations.exact(), trainer.model.relations.operators())


def test_after_one_epoch_the_average_is_that_epoch(family):
    trainer, states = epoch_by_epoch(family, SOFTMAX.replace(epochs=1, averaging=0.99))
    assert_close(trainer.parameters.average, {name: tensor.double() for name, tensor in states[0].items()})


@RECIPES
def test_averaging_does_not_change_what_is_trained(family, recipe):
    _, states = epoch_by_epoch(family, recipe)
    _, plain = epoch_by_epoch(family, recipe.replace(averaging=0.0))
    for one, other in zip(states, plain, strict=True):
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_validation_leaves_the_trained_parameters_untouched(family):
    trainer, states = epoch_by_epoch(family, SOFTMAX.replace(validate_every=1))
    _, unseen = epoch_by_epoch(family, SOFTMAX)
    assert all("valid_mrr" in row for row in trainer.state.history)
    for one, other in zip(states, unseen, strict=True):
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_validation_measures_the_average(family):
    trainer, measure = Trainer(family, SOFTMAX.replace(validate_every=1)), Evaluator(family, "valid")
    other = Trainer(family, SOFTMAX)
    trained = []
    for _ in range(EPOCHS):
        trainer.run_epoch()
        for name, parameter in other.model.named_parameters():
            parameter.data.copy_(trainer.parameters.average[name])
        assert trainer.state.history[-1]["valid_mrr"] == measure(EmbeddingScorer(other.model)).mrr
        trained.append(measure(EmbeddingScorer(trainer.model)).mrr)
    assert trained != [row["valid_mrr"] for row in trainer.state.history]  # otherwise the test is void


def test_the_best_average_on_valid_is_kept(family):
    recipe = SOFTMAX.replace(validate_every=1, epochs=20, entity_lr=1.0)
    trainer, states = epoch_by_epoch(family, recipe)
    curve = [row["valid_mrr"] for row in trainer.state.history]
    best = 1 + curve.index(max(curve))
    assert trainer.state.best_epoch == best < 20  # otherwise the test is void
    model = trainer.best_model()
    expected = exponential_average(states[:best], recipe.averaging)
    torch.testing.assert_close(model.entities.double(), expected["entities"], atol=1e-5, rtol=1e-5)
    assert Evaluator(family, "valid")(EmbeddingScorer(model)).mrr == max(curve)


def test_the_stored_model_is_the_average(family, tmp_path):
    made = dh.train(family, SOFTMAX, out=tmp_path / "run", progress=False)
    _, states = epoch_by_epoch(family, SOFTMAX)
    stored = dh.load(tmp_path / "run")
    assert torch.equal(stored.model.entities, made.model.entities)
    average = exponential_average(states, SOFTMAX.averaging)
    assert_close({"entities": stored.model.entities}, {"entities": average["entities"]})
    assert torch.equal(stored.model.codes, average["relations.logits"].argmax(1).to(torch.uint8))
    assert dh.evaluate(stored, split="test").to_dict() == made.metrics["test"]


# --- stopping and resuming --------------------------------------------------------------------------


def stop_at(epoch, step=2):
    def callback(event):
        if event["event"] == "step" and (event["epoch"], event["step"]) == (epoch, step):
            raise Stop

    return callback


@RECIPES
@pytest.mark.parametrize("validate_every", [0, 1])
def test_a_resumed_run_with_averaging_is_bit_identical(family, tmp_path, recipe, validate_every):
    recipe = recipe.replace(validate_every=validate_every)
    options = {"progress": False, "checkpoint_minutes": 0}
    with pytest.raises(Stop):
        dh.train(family, recipe, out=tmp_path / "run", callback=stop_at(3), **options)
    resumed = dh.train(family, recipe, out=tmp_path / "run", resume=True, **options)
    whole = dh.train(family, recipe, progress=False)
    assert torch.equal(resumed.model.entities, whole.model.entities)
    assert torch.equal(resumed.model.codes, whole.model.codes)
    for key in ("epochs", "best_epoch", "valid", "test"):
        assert resumed.metrics[key] == whole.metrics[key]


def test_a_run_stopped_in_the_middle_of_an_epoch_keeps_its_average(family, tmp_path):
    import os
    import signal

    def interrupt(event):
        if event["event"] == "step" and (event["epoch"], event["step"]) == (2, 2):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        dh.train(family, SOFTMAX, out=tmp_path / "run", callback=interrupt, progress=False)
    resumed = dh.train(family, SOFTMAX, out=tmp_path / "run", resume=True, progress=False)
    whole = dh.train(family, SOFTMAX, progress=False)
    assert torch.equal(resumed.model.entities, whole.model.entities)
    assert torch.equal(resumed.model.codes, whole.model.codes)


def test_another_decay_cannot_be_resumed(family, tmp_path):
    with pytest.raises(Stop):
        dh.train(family, SOFTMAX, out=tmp_path / "run", callback=stop_at(2), checkpoint_minutes=0, progress=False)
    with pytest.raises(DihedralError, match="was made with another recipe"):
        dh.train(family, SOFTMAX, out=tmp_path / "run", resume=True, averaging=0.5, progress=False)
