"""Evaluation: filtered ranking and the metrics computed from ranks."""

from dihedral.evaluation.metrics import Evaluation, Evaluator, Ranks, rank_triples, summarise

__all__ = ["Evaluation", "Evaluator", "Ranks", "rank_triples", "summarise"]
