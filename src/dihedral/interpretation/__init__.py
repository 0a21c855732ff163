"""What a model has learned: relations as rows of group elements, their inverses, compositions and rules."""

from dihedral.interpretation.explanations import Explanation, explain
from dihedral.interpretation.rows import Algebra, Match, Row, Rule, algebra
from dihedral.interpretation.rules import MinedRule, find_rules
from dihedral.interpretation.shares import Share

__all__ = ["Algebra", "Explanation", "Match", "MinedRule", "Row", "Rule", "Share", "algebra", "explain", "find_rules"]
