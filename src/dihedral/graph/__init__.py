"""Graphs: triples and vocabularies, readers, benchmarks, the FAMILY generator and the index."""

from dihedral.graph.family import make_family
from dihedral.graph.index import GraphIndex, KnownAnswers
from dihedral.graph.readers import load_graph
from dihedral.graph.triples import Graph
from dihedral.graph.vocabulary import Vocabulary

__all__ = ["Graph", "GraphIndex", "KnownAnswers", "Vocabulary", "load_graph", "make_family"]
