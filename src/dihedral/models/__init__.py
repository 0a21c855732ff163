"""Models: an entity table and a relation operator, built by name."""

from dihedral.models.model import BlockRelations, Model, Relations
from dihedral.models.registry import MODELS, STORED_MODELS, build_model, restore_relations

__all__ = ["MODELS", "STORED_MODELS", "BlockRelations", "Model", "Relations", "build_model", "restore_relations"]
