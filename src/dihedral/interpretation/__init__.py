"""What a model has learned: relations as rows of group elements, their inverses, compositions and rules."""

from dihedral.interpretation.constants import find_constant_rules
from dihedral.interpretation.derivation import Derived, materialise
from dihedral.interpretation.explanations import Explanation, explain
from dihedral.interpretation.horn import HornRule, RuleCounter, from_mined
from dihedral.interpretation.rows import Algebra, Match, Row, Rule, algebra
from dihedral.interpretation.rule_formats import read_rules, write_rules
from dihedral.interpretation.rules import MinedRule, find_rules
from dihedral.interpretation.shares import Share

__all__ = [
    "Algebra", "Derived", "Explanation", "HornRule", "Match", "MinedRule", "Row", "Rule", "RuleCounter", "Share",
    "algebra", "explain", "find_constant_rules", "find_rules", "from_mined", "materialise", "read_rules", "write_rules",
]  # fmt: skip
