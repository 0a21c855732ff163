"""What a model has learned: relations as rows of group elements, their inverses, compositions and rules."""

from dihedral.interpretation.constants import find_constant_rules
from dihedral.interpretation.derivation import Derived, materialise
from dihedral.interpretation.element_rows import Algebra, Equation, Match, Row, algebra
from dihedral.interpretation.explanations import Explanation, explain
from dihedral.interpretation.horn import HornRule, RuleCounter, from_mined
from dihedral.interpretation.mining import MinedRule, find_rules
from dihedral.interpretation.rule_formats import read_rules, write_rules

__all__ = [
    "Algebra", "Derived", "Equation", "Explanation", "HornRule", "Match", "MinedRule", "Row", "RuleCounter", "algebra",
    "explain", "find_constant_rules", "find_rules", "from_mined", "materialise", "read_rules", "write_rules",
]  # fmt: skip
