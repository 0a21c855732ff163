"""Results that convert to tables of other libraries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dihedral.errors import DihedralError


class Tabular:
    """A result with `to_arrow`, from which the other tables are made."""

    def to_arrow(self) -> pa.Table:
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame."""
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError:
            raise DihedralError("to_pandas needs pandas: pip install pandas") from None

    def to_polars(self) -> Any:
        """The same as a polars DataFrame."""
        try:
            import polars
        except ModuleNotFoundError:
            raise DihedralError("to_polars needs polars: pip install polars") from None
        return polars.from_arrow(self.to_arrow())
