"""The dihedral group D_K and its graded elements: products, inverses, the matrices of Eq. 1 and names.

An element of D_K is an integer: rotation m has id m, reflection m has id K + m, for m in 0..K-1.

A graded element is a pair (g, e) with the matrix 2⁻ᵉ · D_g: g is an element of D_K and e is its grade. Grade ∞ is the
zero matrix: the component does not concern the relation. The id of (g, e) is 2K · e + g, and zero has the id -1.
Elements of D_K therefore keep their ids, and `names[id]` and `matrices[id]` also hold for zero, which is listed last.

Methods accept integer arrays and work elementwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dihedral.errors import DihedralError

Elements = NDArray[np.integer[Any]]
ZERO = -1
MAX_GRADE = 15  # the largest grade of a stored element; products have no limit
_SHORT = {1: "½", 2: "¼", 3: "⅛"}


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
    identity: ClassVar[int] = 0

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
    def elements(self) -> Elements:
        """All element ids, rotations first."""
        return np.arange(2 * self.K, dtype=self.dtype)

    def product(self, left: ArrayLike, right: ArrayLike) -> Elements:
        """left · right, as matrices of Eq. 1: F^(m) = O^(m) F^(0), and F^(0) O^(m) = O^(-m) F^(0)."""
        a, b = self._ids(left), self._ids(right)
        reflects_a, reflects_b = a // self.K, b // self.K
        turn = (a % self.K + (1 - 2 * reflects_a) * (b % self.K)) % self.K
        return (turn + self.K * (reflects_a ^ reflects_b)).astype(self.dtype)

    def inverse(self, elements: ArrayLike) -> Elements:
        """The inverse of a rotation is the opposite rotation; a reflection is its own inverse."""
        a = self._ids(elements)
        return np.where(a < self.K, -a % self.K, a).astype(self.dtype)

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

    @property
    def matrices(self) -> NDArray[np.float64]:
        """The 2x2 matrices of Eq. 1, one per element: [2K, 2, 2]."""
        angle = 2 * np.pi * np.arange(self.K) / self.K
        cos, sin = _snap(np.cos(angle)), _snap(np.sin(angle))
        rotations = np.stack([cos, -sin, sin, cos], axis=-1)
        reflections = np.stack([cos, sin, sin, -cos], axis=-1)
        return np.concatenate([rotations, reflections]).reshape(-1, 2, 2) + 0.0  # no -0.0

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
        ids = _integers(elements, self.K)
        wrong = ids[(ids < 0) | (ids >= 2 * self.K)]
        if wrong.size:
            raise DihedralError(f"element {wrong.flat[0]} is not in D_{self.K}; its ids are 0 to {2 * self.K - 1}")
        return ids


@dataclass(frozen=True)
class GradedMonoid:
    """The graded elements of D_K: products multiply g and add grades; the transpose inverts g and keeps the grade.

    >>> m = GradedMonoid(4)
    >>> half = m.element("F4^0·½")
    >>> m.name(m.product(half, half))
    'O4^0·¼'
    >>> m.name(m.product(half, m.zero))
    '0'
    """

    K: int
    identity: ClassVar[int] = 0
    zero: ClassVar[int] = ZERO

    def __post_init__(self) -> None:
        DihedralGroup(self.K)  # checks K

    @property
    def group(self) -> DihedralGroup:
        return DihedralGroup(self.K)

    def group_part(self, elements: ArrayLike) -> Elements:
        """g of each element (g, e); that of zero is the identity."""
        ids = self._ids(elements)
        return np.where(ids >= 0, ids % (2 * self.K), 0).astype(self.group.dtype)

    def grades(self, elements: ArrayLike) -> NDArray[np.float64]:
        """e of each element (g, e): 0, 1, … or ∞."""
        ids = self._ids(elements)
        return np.where(ids >= 0, ids // (2 * self.K), np.inf)

    def sizes(self, elements: ArrayLike) -> NDArray[np.float64]:
        """The size 2⁻ᵉ of each element."""
        return np.exp2(-self.grades(elements))

    def make(self, group_part: ArrayLike, grades: ArrayLike) -> Elements:
        """The elements (g, e)."""
        g, e = np.broadcast_arrays(self.group._ids(group_part), np.asarray(grades, dtype=np.float64))
        if ((e < 0) | (np.isfinite(e) & (e % 1 != 0)) | np.isnan(e)).any():
            raise DihedralError("grades are whole numbers of 0 or more, or infinity")
        finite = np.isfinite(e)
        return np.where(finite, 2 * self.K * np.where(finite, e, 0).astype(np.int64) + g, ZERO)

    def product(self, left: ArrayLike, right: ArrayLike) -> Elements:
        """left · right: group parts multiply, grades add, zero absorbs."""
        a, b = np.broadcast_arrays(self._ids(left), self._ids(right))
        size = 2 * self.K
        parts = self.group.product(self.group_part(a), self.group_part(b)).astype(np.int64)
        return np.where((a >= 0) & (b >= 0), size * (a // size + b // size) + parts, ZERO)

    def transpose(self, elements: ArrayLike) -> Elements:
        """The inverse of the group part with the same grade; in D_K the inverse."""
        a = self._ids(elements)
        size = 2 * self.K
        return np.where(a >= 0, a // size * size + self.group.inverse(self.group_part(a)), ZERO)

    def matrices(self, max_grade: int = 0) -> NDArray[np.float64]:
        """The 2x2 matrices of all elements up to a grade, by id, then that of zero: [2K (max_grade + 1) + 1, 2, 2]."""
        levels = np.exp2(-np.arange(max_grade + 1.0))
        graded = (levels[:, None, None, None] * self.group.matrices).reshape(-1, 2, 2)
        return np.concatenate([graded, np.zeros((1, 2, 2))])

    def name(self, element: int | np.integer[Any] | Elements) -> str:
        """F4^1 has grade 0, F4^1·½ grade 1; zero is 0."""
        a = int(self._ids(element))
        if a < 0:
            return "0"
        grade, part = divmod(a, 2 * self.K)
        return self.group.name(part) + (f"·{_SHORT.get(grade, f'1/{2**grade}')}" if grade else "")

    def names(self, max_grade: int = 0) -> list[str]:
        """The names of all elements up to a grade, by id, then that of zero."""
        return [self.name(a) for a in range(2 * self.K * (max_grade + 1))] + ["0"]

    def element(self, name: str) -> int:
        """The id of a named element."""
        if name == "0":
            return ZERO
        part, _, level = name.partition("·")
        return int(self.make(self.group.element(part), grade_of(level) if level else 0))

    def elements(self, grades: tuple[float, ...] = (0,)) -> Elements:
        """All element ids with these grades, in their order; zero is one element."""
        ids = [[ZERO] if grade == np.inf else self.make(self.group.elements, grade) for grade in grades]
        return np.concatenate(ids).astype(np.int64)

    def dtype(self, max_grade: int) -> np.dtype[Any]:
        """The smallest signed integer type that holds zero and every id up to a grade."""
        return np.promote_types(np.min_scalar_type(ZERO), np.min_scalar_type(-2 * self.K * (max_grade + 1)))

    def _ids(self, elements: ArrayLike) -> NDArray[np.int64]:
        ids = _integers(elements, self.K)
        if ids.size and ids.min() < ZERO:
            raise DihedralError(f"element {ids.min()} is not a graded element of D_{self.K}; its ids start at {ZERO}")
        return ids


def _integers(elements: ArrayLike, K: int) -> NDArray[np.int64]:
    ids = np.asarray(elements)
    if ids.dtype.kind not in "iu":
        raise DihedralError(f"elements of D_{K} are integers, not {ids.dtype}")
    return ids.astype(np.int64)


def _snap(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round values within rounding error of a multiple of 1/2, such as cosines, to that multiple."""
    nearest = np.round(values * 2) / 2
    return np.where(np.abs(values - nearest) < 1e-15, nearest, values)


def grade_of(level: str) -> float:
    """The grade of a size such as 1, ½, 1/4, 0.125 or 0.

    >>> [grade_of(level) for level in ("1", "½", "1/4", "0")]
    [0, 1, 2, inf]
    """
    text = level.strip()
    try:
        size = Fraction({short: f"1/{2**grade}" for grade, short in _SHORT.items()}.get(text, text))
    except (ValueError, ZeroDivisionError):
        size = Fraction(-1)
    if size == 0:
        return np.inf
    grade = size.denominator.bit_length() - 1
    if size.numerator != 1 or size.denominator != 2**grade or grade > MAX_GRADE:
        raise DihedralError(f"level {level!r:.40} is not valid; levels are 1, 1/2, 1/4, … 1/{2**MAX_GRADE} and 0")
    return grade


def levels_text(grades: tuple[float, ...]) -> str:
    """The levels of grades as `parse_levels` reads them.

    >>> levels_text((0, 1, np.inf))
    '1, 1/2, 0'
    """
    return ", ".join("0" if grade == np.inf else str(Fraction(1, 2 ** int(grade))) for grade in grades)


def parse_levels(text: str) -> tuple[float, ...]:
    """The grades of comma-separated levels, without repeats, in ascending order.

    >>> parse_levels("1, 1/2, 0")
    (0, 1, inf)
    """
    grades = tuple(sorted({grade_of(level) for level in text.split(",")}))
    if grades == (np.inf,):
        raise DihedralError(f"levels is {text!r}; it needs a level other than 0")
    return grades
