"""Queries of several facts: built in Python, SPARQL or JSON, checked to be trees, and evaluated over probabilities."""

from dihedral.ask.tree import Fact, OneOf, Query, Variable

__all__ = ["Fact", "OneOf", "Query", "Variable"]
