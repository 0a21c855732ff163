"""What a finished model rests on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral.graph.readers import write_folder
from tests.small_graphs import small_probabilities

SETTINGS = {"epochs": 6, "validate_every": 1, "dimension": 16, "progress": False, "device": "cpu", "seed": 0}


def read_from_files(graph, folder):
    write_folder(graph, folder)
    return dh.load_graph(folder)


def read_from_a_table(graph, folder):
    """All splits in one table, the rows of test first."""
    table = graph.to_arrow()
    is_other = [split != "test" for split in table["split"].to_pylist()]
    return dh.load_graph(table.take(np.argsort(is_other, kind="stable")))


@pytest.mark.parametrize("read", [read_from_files, read_from_a_table])
def test_nothing_but_the_metrics_of_test_depends_on_test(family, tmp_path, read):
    order = np.random.default_rng(0).permutation(len(family.test))
    graphs = [family, family.replace(test=family.test[order]), family.replace(test=family.test[:0])]
    graphs = [read(graph, tmp_path / str(number)) for number, graph in enumerate(graphs)]
    with small_probabilities():
        first, *others = (dh.train(graph, "demo/family", **SETTINGS) for graph in graphs)
    assert first.calibration is not None
    for other in others:
        assert list(other.graph.entities) == list(first.graph.entities)
        assert list(other.graph.relations) == list(first.graph.relations)
        assert torch.equal(other.model.entities, first.model.entities)
        assert torch.equal(other.model.codes, first.model.codes)
        assert other.metrics["valid"] == first.metrics["valid"]
        assert other.metrics["best_epoch"] == first.metrics["best_epoch"]
        assert other.calibration.to_dict() == first.calibration.to_dict()
        assert dh.evaluate(other, split="valid", order="probability").mrr == (
            dh.evaluate(first, split="valid", order="probability").mrr
        )
        assert list(dh.find_rules(other, top=5)) == list(dh.find_rules(first, top=5))
        assert list(other.graph.by_degree) == list(first.graph.by_degree)
