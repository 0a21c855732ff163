"""Evaluation: filtered ranking and the metrics computed from ranks."""

from dihedral.evaluation.metrics import Evaluation, Evaluator, summarise
from dihedral.evaluation.ranking import Ranks, rank_triples

__all__ = ["Evaluation", "Evaluator", "Ranks", "rank_triples", "summarise"]
