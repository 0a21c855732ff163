"""Path models are restored from what is stored, without torch's compiler."""

from __future__ import annotations


def test_restoring_a_model_does_not_import_the_compiler_of_torch(python):
    script = (
        "import sys, torch\n"
        "from dihedral.models.dihedral import CodeRelations\n"
        "from dihedral.models.path_model import PathModel\n"
        "relations = CodeRelations(torch.zeros(5, 8, dtype=torch.uint8), 4)\n"
        "stored = PathModel(relations, 3, gated=True).stored()\n"
        "before = set(sys.modules)\n"
        "restored = PathModel.restored(relations, 3, stored).stored()\n"
        "assert all(torch.equal(restored[name], stored[name]) for name in stored)\n"
        "print((sys.modules.keys() - before) & {'sympy', 'torch._dynamo'})\n"
    )
    done = python("-c", script)
    assert done.stdout == "set()\n", done.stderr
