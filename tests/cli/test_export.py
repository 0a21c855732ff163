"""`dihedral export`."""

from __future__ import annotations

import json

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("model.npz", ["model.npz"]),
        ("model.parquet", ["model.parquet", "model.relations.parquet"]),
        ("model.txt", ["model.relations.txt", "model.txt"]),
    ],
)
def test_export_writes_the_files_and_prints_their_names(cli, model_folder, tmp_path, name, files):
    done = cli("export", model_folder, "--out", tmp_path / name)
    assert done.code == 0 and sorted(path.name for path in tmp_path.iterdir()) == files
    assert all(str(tmp_path / file) in done.out for file in files)
    assert sorted(json.loads(cli("export", model_folder, "--out", tmp_path / name, "--json").out)["files"]) == [
        str(tmp_path / file) for file in files
    ]


def test_a_model_in_format_version_1_can_be_exported(cli, fixtures, tmp_path):
    assert cli("export", fixtures / "model-v1", "--out", tmp_path / "old.npz").code == 0
    assert np.load(tmp_path / "old.npz")["entities"].shape == (40, 8)


def test_an_unknown_extension_is_rejected(cli, model_folder, tmp_path):
    done = cli("export", model_folder, "--out", tmp_path / "model.pt")
    assert done.code == 2 and "has the suffix '.pt'; export to one of" in done.err
