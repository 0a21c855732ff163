"""The synthetic FAMILY graph of the paper's Case Studies: two generations and their kinship."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dihedral.errors import DihedralError, check_seed
from dihedral.graph.split import split_triples
from dihedral.graph.triples import Graph, build_graph
from dihedral.graph.vocabulary import Vocabulary

RELATIONS = ("spouse", "child", "parent", "sibling", "parent_in_law", "child_in_law")
Pairs = NDArray[np.int64]  # [n, 2]: head, tail


def make_family(
    people: int = 1200, *, parents: int = 2, seed: int = 0, valid: float = 0.05, test: float = 0.05
) -> Graph:
    """Generate two generations of married couples; the younger people are children of the elder couples.

    (h, parent, t) says that t is the parent of h. So spouse · parent = parent_in_law: the parent of one's spouse is
    one's parent-in-law. The order matters: parent · spouse is a parent.

    parents: 2 links a person to both members of a couple, 1 to only one of them. With two, parent · spouse = parent
    requires R_spouse = I, and D_K has no exact solution; with one it has.

    >>> make_family(40, seed=1).num_relations
    6
    """
    if people < 8 or people % 4:
        raise DihedralError(f"people is {people}; two generations of couples need a multiple of 4, 8 or more")
    if parents not in (1, 2):
        raise DihedralError(f"parents is {parents}; a person is linked to 1 or 2 parents")
    pairs = _kinship(people // 4, parents, np.random.default_rng(check_seed(seed)))
    triples = np.concatenate(
        [np.stack([p[:, 0], np.full(len(p), RELATIONS.index(name)), p[:, 1]], axis=1) for name, p in pairs.items()]
    ).astype(np.int32)
    names = [f"{'man' if (i // (people // 4)) % 2 == 0 else 'woman'}_{i:04d}" for i in range(people)]
    parts = split_triples(triples, valid=valid, test=test, seed=seed)
    return build_graph(Vocabulary(names), Vocabulary(RELATIONS, "relation"), parts, "family")


def _kinship(couples: int, parents: int, rng: np.random.Generator) -> dict[str, Pairs]:
    """The (head, tail) pairs of each relation, for a number of couples per generation."""
    elder = np.stack([np.arange(couples), np.arange(couples) + couples], axis=1)  # [couples, 2]: man, woman
    younger = np.stack([rng.permutation(couples), couples + rng.permutation(couples)], axis=1) + 2 * couples
    family_of = rng.integers(couples, size=2 * couples)  # the elder couple of each younger person
    # nobody marries a sibling: the wife of such a couple moves to the next family
    same = family_of[younger[:, 0] - 2 * couples] == family_of[younger[:, 1] - 2 * couples]
    wives = younger[same, 1] - 2 * couples
    family_of[wives] = (family_of[wives] + 1) % couples

    children = np.arange(2 * couples) + 2 * couples
    if parents == 2:
        parent = np.concatenate([np.stack([children, elder[family_of, side]], axis=1) for side in (0, 1)])
    else:
        chosen = rng.integers(2, size=couples)  # one parent per family, so that siblings share it
        parent = np.stack([children, elder[family_of, chosen[family_of]]], axis=1)
    couple = np.concatenate([elder, younger])
    spouse = np.concatenate([couple, couple[:, ::-1]])
    partner = np.arange(4 * couples)
    partner[spouse[:, 0]] = spouse[:, 1]
    order = np.argsort(family_of, kind="stable")
    same_family = family_of[order][:, None] == family_of[order][None, :]
    first, second = np.nonzero(same_family & ~np.eye(len(order), dtype=bool))
    siblings = np.stack([children[order[first]], children[order[second]]], axis=1)  # all ordered pairs
    in_law = np.stack([partner[parent[:, 0]], parent[:, 1]], axis=1)
    return {
        "spouse": spouse,
        "child": parent[:, ::-1],
        "parent": parent,
        "sibling": siblings,
        "parent_in_law": in_law,
        "child_in_law": in_law[:, ::-1],
    }
