"""The synthetic FAMILY graph of the paper's Case Studies: two generations and their kinship."""

from __future__ import annotations

import numpy as np

from dihedral.errors import DihedralError, check_seed
from dihedral.graph.split import split_triples
from dihedral.graph.triples import Graph, Vocabulary, build_graph

RELATIONS = ("spouse", "child", "parent", "sibling", "parent_in_law", "child_in_law")


def make_family(
    people: int = 1200,
    *,
    parents: int = 2,
    seed: int = 0,
    valid: float = 0.05,
    test: float = 0.05,
) -> Graph:
    """Two generations with as many men as women; couples within each, children between them.

    (h, parent, t) says that the parent of h is t, so spouse · parent = parent_in_law: the parent of
    one's spouse is one's parent-in-law. In the other order it is not: parent · spouse is a parent.

    parents: 2 links a person to both members of a couple, 1 to one of them only. With two,
    parent · spouse = parent asks for R_spouse = I and no exact solution in D_K exists; with one
    there is one.

    >>> make_family(40, seed=1).num_relations
    6
    """
    if people < 8 or people % 4:
        raise DihedralError(f"people is {people}; two generations of couples need a multiple of 4, 8 or more")
    if parents not in (1, 2):
        raise DihedralError(f"parents is {parents}; a person is linked to 1 or 2 parents")
    rng = np.random.default_rng(check_seed(seed))
    couples = people // 4  # in each generation
    men, women = np.arange(couples), np.arange(couples)
    elder = np.stack([men, women + couples], axis=1)  # [couples, 2]
    younger = np.stack([rng.permutation(couples), couples + rng.permutation(couples)], axis=1) + 2 * couples
    family_of = rng.integers(couples, size=2 * couples)  # the elder couple of each younger person
    # no one marries a brother or sister: move the woman of such a couple to the next family
    same = family_of[younger[:, 0] - 2 * couples] == family_of[younger[:, 1] - 2 * couples]
    brides = younger[same, 1] - 2 * couples
    family_of[brides] = (family_of[brides] + 1) % couples

    def both_ways(pairs: np.ndarray) -> np.ndarray:
        return np.concatenate([pairs, pairs[:, ::-1]])

    young = np.arange(2 * couples) + 2 * couples
    if parents == 2:
        parent = np.concatenate([np.stack([young, elder[family_of, side]], axis=1) for side in (0, 1)])
    else:
        chosen = rng.integers(2, size=couples)  # one parent a family, so that siblings share one
        parent = np.stack([young, elder[family_of, chosen[family_of]]], axis=1)
    spouse = both_ways(np.concatenate([elder, younger]))
    partner = np.arange(people)
    partner[spouse[:, 0]] = spouse[:, 1]
    order = np.argsort(family_of, kind="stable")
    same_family = family_of[order][:, None] == family_of[order][None, :]
    first, second = np.nonzero(same_family & ~np.eye(len(order), dtype=bool))
    sibling = np.stack([young[order[first]], young[order[second]]], axis=1)
    in_law = np.stack([partner[parent[:, 0]], parent[:, 1]], axis=1)

    pairs = {
        "spouse": spouse,
        "child": parent[:, ::-1],
        "parent": parent,
        "sibling": sibling,
        "parent_in_law": in_law,
        "child_in_law": in_law[:, ::-1],
    }
    triples = np.concatenate(
        [np.stack([p[:, 0], np.full(len(p), RELATIONS.index(name)), p[:, 1]], axis=1) for name, p in pairs.items()]
    ).astype(np.int32)
    names = [f"{'man' if (i // couples) % 2 == 0 else 'woman'}_{i:04d}" for i in range(people)]
    parts = split_triples(triples, valid=valid, test=test, seed=seed)
    return build_graph(Vocabulary(names), Vocabulary(RELATIONS, "relation"), parts, "family")
