"""The training loop seen from outside: what a run does, epoch by epoch."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import load_file

import dihedral as dh
from dihedral import DihedralError, Graph
from dihedral.errors import TrainingError
from dihedral.learn import Trainer
from dihedral.models import MODELS

OBJECTIVES = ("logistic", "softmax")


@pytest.fixture
def run(family):
    """run(epochs=3): a short run on forty people, and its events."""

    def train(graph=family, **options):
        events = []
        settings = {"dimension": 8, "batch_size": 64, "epochs": 4, "validate_every": 0} | options
        predictor = dh.train(graph, "demo/family", callback=events.append, progress=False, **settings)
        return predictor, events

    return train


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def same(one, other):
    return torch.equal(one.model.entities, other.model.entities) and torch.equal(
        one.scorer.operators, other.scorer.operators
    )


# --- every model learns -----------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("model", MODELS)
def test_the_loss_of_every_model_goes_down(run, model, objective):
    settings = {"epochs": 8, "batch_size": 32, "entity_lr": 0.3, "relation_init": 0.5}
    if MODELS[model].uses_temperature:
        settings["temperature"] = 1.0
    predictor, events = run(model=model, objective=objective, **settings)
    losses = [event["loss"] for event in of_kind(events, "epoch")]
    assert len(losses) == 8 and all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-2:]) < 0.8 * sum(losses[:2])
    assert predictor.metrics["test"]["triples"] == len(predictor.graph.test)


@pytest.mark.parametrize("model", [name for name in MODELS if MODELS[name].is_discrete])
def test_a_discrete_model_keeps_only_its_codes(run, model):
    predictor, _ = run(model=model, epochs=2)
    assert predictor.model.codes.dtype == torch.uint8
    assert dict(predictor.model.relations.named_parameters()) == {}
    assert int(predictor.model.codes.max()) < (4 if MODELS[model].rotations_only else 8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_batch_larger_than_the_graph_is_one_step(run, family, objective):
    _, events = run(objective=objective, batch_size=10 * len(family.train), epochs=2)
    assert [event["steps"] for event in of_kind(events, "step")] == [1, 1]


def test_grouped_questions_are_asked_once_per_epoch_in_as_many_steps(family):
    recipe = dh.load_recipe("demo/umls").replace(batch_size=50, group_questions=True, validate_every=0)
    trainer, seen, events = Trainer(family, recipe), [], []
    step = trainer.step
    trainer.step = lambda questions: (seen.append(questions), step(questions))[1]
    trainer.callback = events.append
    trainer.run_epoch()
    assert len(seen) == of_kind(events, "step")[-1]["steps"] == math.ceil(len(family.train) / 50)
    head, relation, tail = family.train.T.tolist()
    steps = [*relation, *(each + family.num_relations for each in relation)]
    questions = {entity * 2 * family.num_relations + step for entity, step in zip([*head, *tail], steps, strict=True)}
    asked = torch.cat(seen).tolist()
    assert len(asked) == len(questions) < 2 * len(family.train) and set(asked) == questions
    assert of_kind(events, "epoch")[0]["triples_per_second"] > 0


def test_a_graph_of_one_triple_trains(run):
    predictor, _ = run(Graph.from_names([("a", "r", "b")]), epochs=2, validate_every=1)
    assert "valid" not in predictor.metrics and "test" not in predictor.metrics


# --- the same seed, the same model ------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("model", ["dihedral-gumbel", "dihedral-ste", "complex"])
def test_the_same_seed_gives_the_same_model_bit_for_bit(run, model, objective):
    torch.manual_seed(1)
    one, _ = run(model=model, objective=objective, seed=7)
    torch.manual_seed(2)  # nothing comes from torch's global generator
    other, _ = run(model=model, objective=objective, seed=7)
    assert same(one, other)
    assert one.metrics["test"] == other.metrics["test"]


def test_another_seed_gives_another_model(run):
    assert not same(run(seed=7)[0], run(seed=8)[0])


def test_validating_does_not_change_what_is_learned(run):
    assert same(run(validate_every=0)[0], run(validate_every=4)[0])


def test_training_leaves_torchs_global_generator_alone(run):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run(epochs=1)
    assert torch.equal(torch.get_rng_state(), before)


# --- events and the log -----------------------------------------------------------------------------


def test_events_cover_the_run_from_start_to_end(run, family):
    _, events = run(epochs=3, batch_size=64, validate_every=2)
    steps = math.ceil(len(family.train) / 64)
    assert [event["event"] for event in events] == ["start", *(["step"] * steps + ["epoch"]) * 3, "end", "measured"]
    assert events[0].items() >= {"event": "start", "epoch": 0, "epochs": 3, "graph": "family", "seed": 0}.items()
    assert events[0]["recipe"]["batch_size"] == 64
    assert events[-2]["epoch"] == 3
    assert events[-1]["metrics"]["test"]["both"]["mrr"] > 0
    assert [(e["epoch"], e["step"], e["steps"]) for e in of_kind(events, "step")] == [
        (epoch, step + 1, steps) for epoch in range(3) for step in range(steps)
    ]
    epochs = of_kind(events, "epoch")
    assert [event["epoch"] for event in epochs] == [1, 2, 3]
    assert ["valid_mrr" in event for event in epochs] == [False, True, True]  # every second, and the last


@pytest.mark.parametrize(
    "model", ["dihedral-gumbel", "dihedral-argmax", "dihedral-projection", "dihedral-ste", "complex"]
)
def test_epochs_report_the_temperature_of_models_that_use_one(run, model):
    _, events = run(model=model, epochs=2)
    assert all(("temperature" in event) == MODELS[model].uses_temperature for event in of_kind(events, "epoch"))


def test_the_log_holds_one_row_per_epoch(run, tmp_path):
    _, events = run(epochs=5, validate_every=2, out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "training" / "log.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row.get("valid_mrr") is not None for row in rows] == [False, True, False, True, True]
    for row, event in zip(rows, of_kind(events, "epoch"), strict=True):
        assert set(row) - {"valid_mrr"} == {"epoch", "loss", "seconds", "triples_per_second"}
        assert row["loss"] == event["loss"]
        assert row["seconds"] >= 0 and row["triples_per_second"] > 0


def test_a_new_run_starts_a_new_log(run, tmp_path):
    run(epochs=3, out=tmp_path / "run")
    run(epochs=2, out=tmp_path / "run", overwrite=True)
    rows = (tmp_path / "run" / "training" / "log.jsonl").read_text().splitlines()
    assert [json.loads(row)["epoch"] for row in rows] == [1, 2]


# --- selection on valid -----------------------------------------------------------------------------

RESTLESS = {"objective": "softmax", "entity_lr": 1.0, "relation_lr": 1.0, "batch_size": 32, "regulariser": "none"}


def test_the_best_model_on_valid_is_kept(run, tmp_path):
    out = tmp_path / "run"
    predictor, events = run(epochs=30, validate_every=1, out=out, **RESTLESS)
    curve = [event["valid_mrr"] for event in of_kind(events, "epoch")]
    best = 1 + curve.index(max(curve))
    assert best < 30  # otherwise the test is void
    assert predictor.metrics["best_epoch"] == best and predictor.metrics["epochs"] == 30
    assert predictor.metrics["valid"]["both"]["mrr"] == max(curve)
    assert of_kind(events, "epoch")[-1]["best_mrr"] == max(curve)


def test_metrics_are_those_of_the_stored_model(run, tmp_path):
    predictor, _ = run(epochs=12, validate_every=1, out=tmp_path / "run", **RESTLESS)
    stored = dh.load(tmp_path / "run")
    assert same(stored, predictor) and stored.metrics == predictor.metrics
    for split in ("valid", "test"):
        assert dh.evaluate(stored, split=split).to_dict() == predictor.metrics[split]


def test_without_validation_the_last_model_is_kept(run):
    predictor, _ = run(epochs=4, validate_every=0)
    longer, _ = run(epochs=5, validate_every=0)
    assert predictor.metrics["best_epoch"] == predictor.metrics["epochs"] == 4
    assert not same(predictor, longer)


@pytest.mark.parametrize(("patience", "validate_every"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_training_stops_early_when_valid_does_not_improve(run, patience, validate_every):
    still = {"entity_lr": 1e-12, "relation_lr": 1e-12}  # nothing moves, so the first validation stays the best
    predictor, events = run(epochs=50, patience=patience, validate_every=validate_every, **still)
    assert predictor.metrics["epochs"] == (1 + patience) * validate_every
    assert predictor.metrics["stopped_by"] == "patience"
    assert predictor.metrics["best_epoch"] == validate_every
    assert events[-2] == {"event": "end", "epoch": (1 + patience) * validate_every}


def test_training_ends_when_the_time_is_up(run):
    predictor, events = run(epochs=10**6, minutes=0.02, validate_every=10**5)
    epochs = of_kind(events, "epoch")
    assert predictor.metrics["stopped_by"] == "minutes" and 1 <= len(epochs) < 10**5
    assert "valid_mrr" in epochs[-1] and predictor.metrics["best_epoch"] == len(epochs)  # the last epoch is validated
    assert predictor.metrics["train_seconds"] < 1.2


def test_the_first_epoch_is_trained_whatever_the_time(run):
    predictor, _ = run(epochs=5, minutes=1e-9)
    assert predictor.metrics["epochs"] == 1 and predictor.metrics["stopped_by"] == "minutes"


def test_time_that_suffices_changes_nothing(run):
    assert same(run(epochs=3, minutes=60)[0], run(epochs=3)[0])


def test_a_limit_of_no_minutes_is_refused(run):
    with pytest.raises(DihedralError, match="minutes is 0; it must be more than 0"):
        run(minutes=0)


def test_without_patience_training_goes_to_the_end(run):
    predictor, _ = run(epochs=9, patience=0, validate_every=1, entity_lr=1e-12, relation_lr=1e-12)
    assert predictor.metrics["epochs"] == 9


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_loss_that_is_not_finite_stops_the_run(run, objective):
    with pytest.raises(TrainingError, match=r"the loss became (nan|inf) in epoch \d.*try a smaller entity_lr"):
        run(objective=objective, entity_lr=1e20)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_loss_that_is_not_finite_leaves_the_last_good_checkpoint(family, tmp_path, objective):
    checkpoint = tmp_path / "run" / "training" / "checkpoint.json"
    seen = {}

    def callback(event):
        if event["event"] == "step" and checkpoint.exists():
            seen["good"] = checkpoint.read_bytes()  # of the epoch before this one

    with pytest.raises(TrainingError, match="the last checkpoint is kept"):
        dh.train(
            family, "demo/family", objective=objective, dimension=8, batch_size=10_000, entity_lr=1e20, epochs=5,
            validate_every=0, out=tmp_path / "run", checkpoint_minutes=0, callback=callback,
        )  # fmt: skip
    assert checkpoint.read_bytes() == seen["good"]
    (file,) = checkpoint.parent.glob("state-*.safetensors")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in load_file(file).values())
    with pytest.raises(DihedralError, match="is not a model folder"):
        dh.load(tmp_path / "run")


def test_a_loss_that_diverges_before_the_first_checkpoint_mentions_none(run, tmp_path):
    with pytest.raises(TrainingError) as stopped:
        run(entity_lr=1e20, batch_size=32, out=tmp_path / "run")
    assert not (tmp_path / "run" / "training" / "checkpoint.json").exists()
    assert "the last checkpoint is kept" not in str(stopped.value)


def test_an_exception_in_a_callback_stops_the_run(family):
    def callback(event):
        if event["event"] == "epoch":
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        dh.train(family, "demo/family", dimension=8, epochs=3, callback=callback)


def test_validation_ranks_only_the_requested_number_of_triples(family):
    recipe = dh.Recipe(model="distmult", dimension=8, epochs=1, validate_every=1, validate_on=5)
    trainers = [Trainer(family, recipe, seed=seed) for seed in (1, 1, 2)]
    drawn = [trainer.evaluator.triples.tolist() for trainer in trainers]
    assert len(drawn[0]) == 5 and drawn[0] == drawn[1] != drawn[2]
    assert len(Trainer(family, recipe.replace(validate_on=0)).evaluator.triples) == len(family.valid)
    with pytest.raises(DihedralError, match="validate_on is -1; it must be 0 or more"):
        recipe.replace(validate_on=-1)
