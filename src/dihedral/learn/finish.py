"""From a run to a trained model: measured on valid and test, with probabilities."""

from __future__ import annotations

from dataclasses import replace

import torch

from dihedral.ask.answer_calibration import fit_answers
from dihedral.errors import DihedralError
from dihedral.evaluation import Evaluator
from dihedral.learn.loop import Run
from dihedral.probability.calibration import Calibration, fit_calibration
from dihedral.probability.corrections import Corrections, fit_corrections
from dihedral.probability.ordering import compare_orders
from dihedral.store.reviews import Reviews
from dihedral.store.trained import TrainedModel


def finish(trainer: Run) -> TrainedModel:
    """The best model of a run, measured."""
    trained, state = trainer.result(), trainer.state
    trained.metrics = {
        "seed": trainer.seed,
        "epochs": state.epoch,
        "best_epoch": state.best_epoch if state.best_epoch >= 0 else state.epoch,
        "stopped_by": trainer.stopped_by,
        "train_seconds": round(state.seconds, 3),
        "device": str(trainer.device),
        "processes": trainer.shard.world,
        "torch": torch.__version__,
    }
    measure(trained)
    return trained


def measure(trained: TrainedModel) -> None:
    """Rank valid and test."""
    for split in ("valid", "test"):
        if len(trained.graph.split(split)):
            trained.metrics[split] = Evaluator(trained.graph, split, device=trained.device)(trained.scorer).to_dict()


def fit_probabilities(trained: TrainedModel, seed: int = 0) -> None:
    """Fit probabilities on valid."""
    scorer, graph = trained.scorer, trained.graph
    fitted = fit_calibration(scorer, graph, seed, trained.history.names_at_split)
    orders = compare_orders(scorer, graph, fitted, seed=seed)
    complete = replace(fitted, orders=orders, queries=fit_answers(scorer, graph, seed))
    # rounded as in a file, so that a stored model gives the same answers
    trained.calibration = Calibration.from_dict(complete.to_dict(), graph.relations)


def try_to_fit_probabilities(trained: TrainedModel, seed: int) -> None:
    """The same; where it is not possible, keep the reason with the model."""
    try:
        fit_probabilities(trained, seed)
    except DihedralError as error:
        trained.calibration, trained.why_not_calibrated = None, str(error)


def use_reviews(trained: TrainedModel, reviews: Reviews) -> None:
    """Correct the probabilities by what reviewers decided (`probability.corrections`)."""
    if trained.calibration is None:
        raise DihedralError(f"decisions correct probabilities, and there are none: {trained.why_not_calibrated}")
    corrections = fit_corrections(reviews.standing().values())
    if not corrections.accepted + corrections.rejected:
        raise DihedralError("no accepted or rejected fact has a probability; there is nothing to correct by")
    rounded = Corrections.from_dict(corrections.to_dict())  # as in a file
    trained.calibration = trained.calibration.corrected(rounded, trained.graph.relations)
