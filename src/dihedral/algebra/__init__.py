"""What the codes say: relations as rows of group elements, their inverses, compositions and rules."""

from dihedral.algebra.explanations import Explanation, explain
from dihedral.algebra.rows import Algebra, Match, Row, Rule, Share, algebra
from dihedral.algebra.rules import MinedRule, find_rules

__all__ = ["Algebra", "Explanation", "Match", "MinedRule", "Row", "Rule", "Share", "algebra", "explain", "find_rules"]
