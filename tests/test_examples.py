"""The notebooks in examples/ run from the first cell to the last, and are stored with their output.

With DIHEDRAL_UPDATE_DOCS=1, the output of this run is stored.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_notebook_is_stored_executed(path):
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5 and [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert "execute_result" in kinds and "error" not in kinds
    assert any("text/html" in output.get("data", {}) for cell in cells for output in cell["outputs"])


@pytest.mark.thorough
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    for needed in ("nbclient", "ipykernel", "pandas", "polars"):
        pytest.importorskip(needed, reason=f"the notebooks need {needed}: pip install 'dihedral[dev]'")
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    stored = notebook.metadata.copy()
    options = {"kernel_name": "python3", "resources": {"metadata": {"path": tmp_path}}, "record_timing": False}
    NotebookClient(notebook, timeout=600, **options).execute()
    assert all(cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code")
    if os.environ.get("DIHEDRAL_UPDATE_DOCS"):
        notebook.metadata = stored  # without the version of Python
        nbformat.write(notebook, path)
