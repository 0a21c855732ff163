"""From a run to a trained model: measured on valid and test, with probabilities."""

from __future__ import annotations

from typing import Any

import torch

from dihedral.ask.answer_calibration import fit_answers
from dihedral.errors import DihedralError
from dihedral.evaluation import Evaluator
from dihedral.learn.loop import Trainer
from dihedral.probability.calibration import fit_calibration, measure_judgements
from dihedral.probability.corrections import fit_corrections
from dihedral.probability.ordering import compare_orders
from dihedral.store.reviews import Reviews
from dihedral.store.trained import TrainedModel


def finish(trainer: Trainer) -> TrainedModel:
    """The best model of a run, measured."""
    model, latents = trainer.best_model()
    state = trainer.state
    metrics: dict[str, Any] = {
        "seed": trainer.seed,
        "epochs": state.epoch,
        "best_epoch": state.best_epoch if state.best_epoch >= 0 else state.epoch,
        "stopped_by": trainer.stopped_by,
        "train_seconds": round(state.seconds, 3),
        "device": str(trainer.device),
        "processes": trainer.shard.world,
        "torch": torch.__version__,
    }
    sums = {name: each.sum for name, each in trainer.optimisers.items()}
    trained = TrainedModel(model, trainer.graph, trainer.recipe, metrics, latents=latents, optimiser=sums)
    measure(trained)
    return trained


def measure(trained: TrainedModel) -> None:
    """Rank valid and test."""
    for split in ("valid", "test"):
        if len(trained.graph.split(split)):
            trained.metrics[split] = Evaluator(trained.graph, split, device=trained.device)(trained.scorer).to_dict()


def fit_probabilities(trained: TrainedModel, seed: int = 0) -> None:
    """Fit probabilities on valid, and measure those of judgements on test."""
    scorer, graph = trained.scorer, trained.graph
    calibration = fit_calibration(scorer, graph, seed, trained.history.names_at_split)
    measured = measure_judgements(scorer, graph, calibration, seed + 1)
    answers = compare_orders(scorer, graph, calibration, seed=seed)
    of_queries = fit_answers(scorer, graph, seed)
    trained.metrics["calibration"] = {
        "models": calibration.to_dict(), "judgements": {"test": measured}, "answers": answers,
        "queries": of_queries.to_dict() if of_queries else None,
    }  # fmt: skip


def try_to_fit_probabilities(trained: TrainedModel, seed: int) -> None:
    """The same; where it is not possible, keep the reason with the model."""
    try:
        fit_probabilities(trained, seed)
    except DihedralError as error:
        trained.metrics["calibration"] = {"reason": str(error)}


def has_probabilities(trained: TrainedModel) -> bool:
    return "models" in trained.metrics.get("calibration", {})


def use_reviews(trained: TrainedModel, reviews: Reviews) -> None:
    """Correct the probabilities by what reviewers decided (`probability.corrections`)."""
    corrections = fit_corrections(reviews.standing().values())
    if not corrections.accepted + corrections.rejected:
        raise DihedralError("no accepted or rejected fact has a probability; there is nothing to correct by")
    trained.metrics["calibration"] |= {"reviews": corrections.to_dict()}
