"""DihEdral for PyKEEN: an interaction, a model, and conversion between PyKEEN models and predictors.

Importing this module registers `model="DihEdral"` and `interaction="DihEdral"` with PyKEEN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dihedral.elements.group import parse_levels
from dihedral.errors import DihedralError
from dihedral.graph.triples import Graph, build_graph
from dihedral.graph.vocabulary import Vocabulary
from dihedral.models import MODELS, Model
from dihedral.models.dihedral import CodeRelations, DiscreteRelations
from dihedral.predict.predictor import Predictor
from dihedral.store.trained import TrainedModel

try:
    from pykeen.losses import Loss, SoftplusLoss
    from pykeen.models import ERModel, model_resolver
    from pykeen.models import Model as PyKEENModel
    from pykeen.nn.init import PretrainedInitializer
    from pykeen.nn.modules import Interaction, interaction_resolver
    from pykeen.nn.representation import Representation
    from pykeen.pipeline import PipelineResult
    from pykeen.triples import CoreTriplesFactory, KGInfo, TriplesFactory
except ImportError:
    raise DihedralError("dihedral.integrations.pykeen needs PyKEEN: pip install 'dihedral[pykeen]'") from None

__all__ = ["DihEdral", "DihEdralInteraction", "DihEdralRepresentation", "from_predictor", "to_predictor"]

ESTIMATORS: dict[str, Any] = {each: MODELS[f"dihedral-{each}"] for each in ("gumbel", "ste", "argmax", "projection")}


class DihEdralInteraction(Interaction[Tensor, Tensor, Tensor]):
    """φ(h, r, t) = Σ_l h⁽ˡ⁾ᵀ R⁽ˡ⁾ t⁽ˡ⁾ with 2x2 blocks R⁽ˡ⁾.

    Entities have shape [2L]: the L first coordinates, then the L second ones. Relations have shape [4, L]: the entries
    a, b, c, d of the blocks [[a, b], [c, d]].

    >>> h, t = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> quarter_turn = torch.tensor([[0.0], [-1.0], [1.0], [0.0]])
    >>> float(DihEdralInteraction()(h, quarter_turn, t)), float(DihEdralInteraction()(t, quarter_turn, h))
    (-1.0, 1.0)
    """

    relation_shape = ("bl",)

    def forward(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Return scores [...] for h [..., 2L], r [..., 4, L] and t [..., 2L], with broadcasting."""
        a, b, c, d = r.unbind(-2)
        (hx, hy), (tx, ty) = h.chunk(2, dim=-1), t.chunk(2, dim=-1)
        heads, relations, tails = h[..., 0].numel(), r[..., 0, 0].numel(), t[..., 0].numel()
        # multiply the largest operand last, so that scoring all entities is one matrix product
        if relations > max(heads, tails):
            pairs = torch.cat([hx * tx, hx * ty, hy * tx, hy * ty], dim=-1)
            return _dot(pairs, r.flatten(-2))
        if heads > tails:
            return _dot(h, torch.cat([a * tx + b * ty, c * tx + d * ty], dim=-1))
        return _dot(torch.cat([a * hx + c * hy, b * hx + d * hy], dim=-1), t)


def _dot(left: Tensor, right: Tensor) -> Tensor:
    if left.shape == right.shape:
        return (left * right).sum(-1)
    return torch.einsum("...d,...d->...", left, right)  # a matrix product if the leading sizes differ


class DihEdralRepresentation(Representation):
    """Relations as block entries [4, L]: sampled or relaxed during training, exact elements of D_K in evaluation.

    The temperature, a buffer, falls from `temperature` to `temperature_floor` over the first `cooling_steps` parameter
    updates, because PyKEEN notifies a model of updates and not of epochs.
    """

    def __init__(
        self,
        relations: DiscreteRelations,
        *,
        init: float = 1.0,
        temperature: float = 3.0,
        temperature_floor: float = 0.5,
        cooling_steps: int = 1000,
    ) -> None:
        super().__init__(max_id=relations.num_relations, shape=(4, relations.dimension // 2), unique=True)
        if not 0 < temperature_floor <= temperature:
            raise DihedralError(
                f"temperature_floor is {temperature_floor}; it must be above 0 and at most temperature, {temperature}"
            )
        if cooling_steps < 1:
            raise DihedralError(f"cooling_steps is {cooling_steps}; it must be 1 or more")
        self.relations = relations
        self.init, self.start, self.floor = init, temperature, temperature_floor
        self.cooling = math.exp(-math.log(temperature / temperature_floor) / cooling_steps)
        self.register_buffer("temperature", torch.tensor(float(temperature)))
        self.temperature: Tensor

    def _plain_forward(self, indices: Tensor | None = None) -> Tensor:
        if self.training:
            return self.relations.operators(indices, temperature=self.temperature)
        exact = self.relations.exact()
        return exact if indices is None else exact[indices]

    def reset_parameters(self) -> None:
        for parameter in self.relations.parameters():
            nn.init.normal_(parameter, std=self.init)
        self.temperature.fill_(self.start / self.cooling)  # PyKEEN also calls post_parameter_update after a reset

    def post_parameter_update(self) -> None:
        self.temperature.mul_(self.cooling).clamp_(min=self.floor)


class DihEdral(ERModel[Tensor, Tensor, Tensor]):
    """DihEdral (Xu & Li, ACL 2019) as a PyKEEN model.

    embedding_dim: 2L, the number of real values per entity.
    K: the group is D_K, with K rotations and K reflections.
    estimator: "gumbel" (Gumbel-softmax), "argmax" (straight-through estimator on logits) or "projection" (the element
        nearest to a free 2x2 matrix) for any K, "ste" (straight-through estimator on signs) for K = 4 and 6.
    levels: sizes of the elements, such as "1, 1/2, 0", for all but "ste"; "1" is D_K.
    temperature, temperature_floor, cooling_steps: for "gumbel" and "argmax", see `DihEdralRepresentation`.
    entity_init, relation_init: entities and relation parameters are initialised from N(0, init²); relation_init is by
        default 0.5 for "projection" and 1 for the others.
    regularizer: applies to the entities; the relations are orthogonal and need none.
    """

    hpo_default: ClassVar[Mapping[str, Any]] = {
        "embedding_dim": {"type": int, "low": 16, "high": 256, "q": 16},
        "K": {"type": "categorical", "choices": [4, 6, 8]},
    }
    loss_default: ClassVar[type[Loss]] = SoftplusLoss  # Eq. 2
    loss_default_kwargs: ClassVar[Mapping[str, Any]] = {"reduction": "mean"}

    def __init__(
        self,
        *,
        triples_factory: KGInfo,
        embedding_dim: int = 200,
        K: int = 4,
        estimator: str = "gumbel",
        levels: str = "1",
        temperature: float = 3.0,
        temperature_floor: float = 0.5,
        cooling_steps: int = 1000,
        entity_init: float = 0.1,
        relation_init: float | None = None,
        regularizer: Any = None,
        regularizer_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if estimator not in ESTIMATORS:
            raise DihedralError(f"estimator is {estimator!r}; choose one of {', '.join(ESTIMATORS)}")
        grades = parse_levels(levels)
        if grades != (0,) and not ESTIMATORS[estimator].is_gradable:
            raise DihedralError(
                f"levels is {levels!r} with estimator {estimator!r}; use gumbel, argmax or projection, or levels '1'"
            )
        relations = ESTIMATORS[estimator](triples_factory.num_relations, embedding_dim, K, grades=grades)
        super().__init__(
            triples_factory=triples_factory,
            interaction=DihEdralInteraction,
            entity_representations_kwargs={
                "shape": embedding_dim,
                "initializer": nn.init.normal_,
                "initializer_kwargs": {"std": entity_init},
                "regularizer": regularizer,
                "regularizer_kwargs": regularizer_kwargs,
            },
            relation_representations=DihEdralRepresentation(
                relations,
                init=relations.default_init if relation_init is None else relation_init,
                temperature=temperature,
                temperature_floor=temperature_floor,
                cooling_steps=cooling_steps,
            ),
            **kwargs,
        )


def to_predictor(
    trained: PyKEENModel | PipelineResult,
    training: CoreTriplesFactory | None = None,
    validation: CoreTriplesFactory | None = None,
    testing: CoreTriplesFactory | None = None,
    *,
    name: str = "pykeen",
) -> Predictor:
    """Return a predictor with the entities and group elements of a model trained in PyKEEN.

    trained: a DihEdral model, or a pipeline result, which includes its training triples.
    training, validation, testing: the triples factories of the dataset; their triples are the known facts.
    name: the name of the graph.

    Inverse relations added by PyKEEN are omitted, because R⁻¹ = Rᵀ.
    """
    model = trained
    if isinstance(trained, PipelineResult):
        model, training = trained.model, training or trained.training
    if not isinstance(model, ERModel) or not isinstance(model.relation_representations[0], DihEdralRepresentation):
        raise DihedralError(
            f"the model is a {type(model).__name__}; pass a dihedral.integrations.pykeen.DihEdral or a result"
        )
    relations = model.relation_representations[0].relations
    graph = _graph_of({"training": training, "validation": validation, "testing": testing}, name)
    sizes = model.num_entities, model.num_real_relations
    if sizes != (graph.num_entities, graph.num_relations):
        raise DihedralError(
            f"training has {graph.num_entities} entities and {graph.num_relations} relations; "
            f"the model has {sizes[0]} and {sizes[1]}"
        )
    model.eval()  # PyKEEN's prediction methods do the same
    forward = slice(None, None, 2 if model.use_inverse_triples else 1)  # PyKEEN stores each inverse after its relation
    with torch.no_grad():
        entities = model.entity_representations[0]().clone()
        converted = Model(entities, _with_codes(relations, forward).to(entities.device))
    return Predictor(TrainedModel(converted.requires_grad_(False), graph))


def from_predictor(predictor: Predictor) -> ERModel[Tensor, Tensor, Tensor]:
    """Return a PyKEEN model with the entities, group elements and numbering of a predictor; it is not trainable."""
    model = predictor.model
    if not isinstance(model.relations, DiscreteRelations):
        raise DihedralError(f"the predictor's model is {model.relations.kind!r}; only DihEdral models can be converted")
    entities = model.entities.detach()
    converted = ERModel(
        triples_factory=KGInfo(model.num_entities, model.num_relations, create_inverse_triples=False),
        interaction=DihEdralInteraction,
        entity_representations_kwargs={
            "shape": model.dimension,
            "initializer": PretrainedInitializer(entities.cpu()),
            "trainable": False,
        },
        relation_representations=DihEdralRepresentation(_with_codes(model.relations)),
        loss=SoftplusLoss(),
    )
    return converted.to(entities.device).eval()


def _with_codes(relations: DiscreteRelations, which: slice = slice(None)) -> CodeRelations:
    """The elements of some relations, without what they were trained with."""
    scales = None if relations.scales is None else relations.scales[which]
    return CodeRelations(relations.codes[which], relations.K, scales, relations.grades)


def _graph_of(factories: Mapping[str, CoreTriplesFactory | None], name: str) -> Graph:
    """Return a PyKEEN dataset as a graph with the same numbering."""
    training = factories["training"]
    if not isinstance(training, TriplesFactory):
        raise DihedralError(f"training is {training!r}; it must be a pykeen.triples.TriplesFactory, which has names")
    splits = []
    for split, factory in factories.items():
        if isinstance(factory, TriplesFactory) and (
            factory.entity_to_id != training.entity_to_id or factory.relation_to_id != training.relation_to_id
        ):
            raise DihedralError(f"{split} and training number their names differently; use factories of one dataset")
        triples = torch.empty(0, 3) if factory is None else factory.mapped_triples
        splits.append(triples.numpy().astype(np.int32))
    entities = Vocabulary(sorted(training.entity_to_id, key=training.entity_to_id.__getitem__))
    relations = Vocabulary(sorted(training.relation_to_id, key=training.relation_to_id.__getitem__), "relation")
    return build_graph(entities, relations, splits, name)


model_resolver.register(DihEdral)
interaction_resolver.register(DihEdralInteraction)
