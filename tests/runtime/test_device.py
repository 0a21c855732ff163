"""The selection of a device."""

from __future__ import annotations

import pytest
import torch

from dihedral.errors import DihedralError
from dihedral.runtime.device import choose_device


@pytest.mark.parametrize(("cuda", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_selects_cuda_if_available(monkeypatch, cuda, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert choose_device("auto") == torch.device(expected)
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "cpu:x", "", "tpu"])
def test_an_unknown_device_is_an_error(name):
    with pytest.raises(DihedralError, match="device is"):
        choose_device(name)
