"""The dihedral group D_K: products, inverses, the matrices of Eq. 1 and names.

An element is an integer: rotation m has id m, reflection m has id K + m, for m in 0..K-1.
Methods accept integer arrays and work elementwise.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dihedral.errors import DihedralError

Elements = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class DihedralGroup:
    """The symmetries of a regular polygon with K vertices: K rotations and K reflections.

    >>> d4 = DihedralGroup(4)
    >>> d4.name(d4.product(d4.element("F4^0"), d4.element("O4^1")))
    'F4^3'
    >>> d4.name(d4.product(d4.element("O4^1"), d4.element("F4^0")))
    'F4^1'
    """

    K: int

    def __post_init__(self) -> None:
        if isinstance(self.K, bool) or not isinstance(self.K, int) or self.K < 1:
            raise DihedralError(f"K is {self.K!r}; a dihedral group needs a whole number K >= 1")

    def __len__(self) -> int:
        return 2 * self.K

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that holds every element id."""
        return np.min_scalar_type(2 * self.K - 1)

    @property
    def identity(self) -> int:
        return 0

    @property
    def elements(self) -> Elements:
        """All element ids, rotations first."""
        return np.arange(2 * self.K, dtype=self.dtype)

    # --- algebra -------------------------------------------------------------------------------

    def product(self, left: ArrayLike, right: ArrayLike) -> Elements:
        """left · right: the product of the matrices of Eq. 1 in that order.

        F^(m) = O^(m) F^(0) and F^(0) O^(m) = O^(-m) F^(0), so a reflection on the left negates the angle on its right.
        """
        a, b = self._ids(left), self._ids(right)
        reflects_a, reflects_b = a // self.K, b // self.K
        turn = (a % self.K + (1 - 2 * reflects_a) * (b % self.K)) % self.K
        return self._store(turn + self.K * (reflects_a ^ reflects_b))

    def inverse(self, elements: ArrayLike) -> Elements:
        """The inverse of a rotation is the opposite rotation; a reflection is its own inverse."""
        a = self._ids(elements)
        return self._store(np.where(a < self.K, -a % self.K, a))

    def power(self, elements: ArrayLike, exponent: int) -> Elements:
        """The repeated product; a negative exponent repeats the inverse."""
        a = self._ids(elements)
        exponent = operator.index(exponent)
        rotated = a * (exponent % self.K) % self.K
        return self._store(np.where(a < self.K, rotated, a if exponent % 2 else 0))

    def is_rotation(self, elements: ArrayLike) -> NDArray[np.bool_]:
        return self._ids(elements) < self.K

    def is_symmetric(self, elements: ArrayLike) -> NDArray[np.bool_]:
        """Whether the matrix equals its transpose: all reflections, the identity and the half turn."""
        a = self._ids(elements)
        return (a >= self.K) | (2 * a % self.K == 0)

    def is_skew(self, elements: ArrayLike) -> NDArray[np.bool_]:
        """Whether the matrix equals minus its transpose: the two quarter turns, if 4 divides K."""
        a = self._ids(elements)
        return (a < self.K) & (4 * a % self.K == 0) & (2 * a % self.K != 0)

    # --- matrices ------------------------------------------------------------------------------

    @property
    def matrices(self) -> NDArray[np.float64]:
        """The 2x2 matrices of Eq. 1, one per element: [2K, 2, 2]."""
        angle = 2 * np.pi * np.arange(self.K) / self.K
        cos, sin = _snap(np.cos(angle)), _snap(np.sin(angle))
        rotations = np.stack([cos, -sin, sin, cos], axis=-1)
        reflections = np.stack([cos, sin, sin, -cos], axis=-1)
        return np.concatenate([rotations, reflections]).reshape(-1, 2, 2) + 0.0  # no -0.0

    # --- names ---------------------------------------------------------------------------------

    def name(self, element: int | np.integer[Any] | Elements) -> str:
        """O4^1 is the rotation by a quarter turn, F4^0 the reflection across the first axis."""
        a = int(self._ids(element))
        return f"{'O' if a < self.K else 'F'}{self.K}^{a % self.K}"

    @property
    def names(self) -> list[str]:
        return [self.name(a) for a in range(2 * self.K)]

    def element(self, name: str) -> int:
        """The id of a named element."""
        try:
            return self.names.index(name)
        except ValueError:
            raise DihedralError(
                f"element {name!r} is not in D_{self.K}; its elements are {', '.join(self.names)}"
            ) from None

    def _ids(self, elements: ArrayLike) -> NDArray[np.int64]:
        a = np.asarray(elements)
        if a.dtype.kind not in "iu":
            raise DihedralError(f"elements of D_{self.K} are integers, not {a.dtype}")
        ids = a.astype(np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= 2 * self.K):
            wrong = ids[(ids < 0) | (ids >= 2 * self.K)].flat[0]
            raise DihedralError(f"element {wrong} is not in D_{self.K}; its ids are 0 to {2 * self.K - 1}")
        return ids

    def _store(self, ids: NDArray[np.int64]) -> Elements:
        return ids.astype(self.dtype)


def _snap(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round values within rounding error of a multiple of 1/2, such as cosines, to that multiple."""
    nearest = np.round(values * 2) / 2
    return np.where(np.abs(values - nearest) < 1e-15, nearest, values)
