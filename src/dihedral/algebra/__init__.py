"""What the codes say: relations as rows of group elements, their inverses and compositions."""

from dihedral.algebra.rows import Algebra, Match, Row, Rule, algebra

__all__ = ["Algebra", "Match", "Row", "Rule", "algebra"]
