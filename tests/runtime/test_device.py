"""Choosing a device."""

from __future__ import annotations

import pytest
import torch

from dihedral.errors import DihedralError
from dihedral.runtime.device import choose_device


def test_auto_takes_the_best_there_is():
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else choose_device("auto").type)
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "cpu:x", "", "tpu"])
def test_a_name_that_is_no_device_is_refused(name):
    with pytest.raises(DihedralError, match="device is"):
        choose_device(name)
