"""`NumberTable`: many rows of few numbers, four bytes each where that holds them exactly, else eight."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

import attrs

NAN = math.nan
EXACT = 2**53


@attrs.define
class _Column:
    # Single precision until a value comes that it does not hold exactly: rewards and counts never need more.
    values: array[float]
    # Whether every value so far was an int or a bool that a float holds exactly; such a column gives ints back.
    whole: bool = True

    def put(self, position: int, number: float) -> None:
        self.whole = self.whole and isinstance(number, int) and abs(number) <= EXACT
        self.values[position] = number
        if self.values[position] != number and self.values.typecode == "f":
            self.values = array("d", self.values)
            self.values[position] = number


@attrs.define
class NumberTable:
    """Columns appear when a row first has them; a row without a column has a hole there, never a zero."""

    _columns: dict[str, _Column] = attrs.field(factory=dict)
    _length: int = 0

    def __len__(self) -> int:
        return self._length

    def append(self, numbers: Mapping[str, float]) -> int:
        """Add a row; returns its position."""
        position = self._length
        self._length += 1
        for column in self._columns.values():
            column.values.append(NAN)
        self._put(position, numbers)
        return position

    def replace(self, position: int, numbers: Mapping[str, float]) -> None:
        """Put another row in the place of the one at ``position``."""
        for column in self._columns.values():
            column.values[position] = NAN
        self._put(position, numbers)

    def _put(self, position: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column(array("f", [NAN]) * self._length)
            column.put(position, number)

    def names(self) -> list[str]:
        """The columns, in the order in which they appeared."""
        return list(self._columns)

    def values(self, name: str, positions: Iterable[int] | None = None) -> Sequence[float]:
        """The numbers of one column at ``positions`` (all by default), without holes."""
        column = self._columns.get(name)
        if column is None:
            return []
        cells = column.values
        chosen = cells if positions is None else map(cells.__getitem__, positions)
        return array("d", (cell for cell in chosen if cell == cell))

    def few(self, name: str, positions: Iterable[int]) -> list[float]:
        """The same as a list, which is faster to make and to read, and four times as large."""
        column = self._columns.get(name)
        cells = map(column.values.__getitem__, positions) if column is not None else ()
        return [cell for cell in cells if cell == cell]

    def cells(self, name: str, positions: Sequence[int]) -> list[float | None]:
        """The cells of one column at ``positions``, None for a hole."""
        column = self._columns.get(name)
        if column is None:
            return [None] * len(positions)
        cells = map(column.values.__getitem__, positions)
        if column.whole:
            return [int(cell) if cell == cell else None for cell in cells]
        return [cell if cell == cell else None for cell in cells]

    def value(self, name: str, position: int) -> float | None:
        """One cell; None for a hole."""
        column = self._columns.get(name)
        if column is None or math.isnan(cell := column.values[position]):
            return None
        return int(cell) if column.whole else cell

    def whole(self, name: str) -> bool:
        """Whether the column holds nothing but whole numbers that came as ints or bools."""
        column = self._columns.get(name)
        return column is not None and column.whole

    def row(self, position: int) -> dict[str, float]:
        """The numbers of one row, as they came."""
        cells = ((name, self.value(name, position)) for name in self._columns)
        return {name: cell for name, cell in cells if cell is not None}
