"""Scratch memory: reused, and never smaller than requested."""

from __future__ import annotations

import torch

from dihedral.engine.scratch import Scratch


def test_a_buffer_is_reused():
    scratch = Scratch()
    first = scratch.take("a", (4, 5))
    assert scratch.take("a", (2, 3)).data_ptr() == first.data_ptr()
    assert scratch.take("a", (10, 5)).shape == (10, 5)


def test_buffers_with_different_names_do_not_overlap():
    scratch = Scratch()
    scratch.take("a", (3,)).fill_(1)
    scratch.take("b", (3,)).fill_(2)
    assert torch.equal(scratch.take("a", (3,)), torch.ones(3))
