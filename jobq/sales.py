"""The sales report of a year, computed from data/sales.csv.

README.md beside that file says what each column means. All amounts are whole cents of euro.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jobq.errors import DataError

COLUMNS = [
    *("booked_on", "order_id", "line", "entry", "refund_of"),
    *("product", "country", "quantity", "unit_price_cents"),
]
BEST = 5  # products listed in a report

K = TypeVar("K", bound=Hashable)


class Line(NamedTuple):
    """What a report needs of one row of the file."""

    booked_on: date
    order_id: int
    entry: str  # sale, refund or cancelled
    product: str
    country: str
    units: int  # negative in a refund
    cents: int  # units x unit price; negative in a refund


def report(year: int, path: Path | None = None) -> dict[str, Any]:
    """Return what was sold, and what was paid back, in one calendar year.

    orders, lines, units: what was sold; refunds take nothing from them.
    gross_cents: the price of that. refunds_cents: what was paid back in the year, whenever it was
    sold; not negative. total_cents: gross less refunds. Three fields split the total: by_month is
    a list of twelve, January first; by_country has every country of the file; best_products has
    the five best, the greatest total first. Cancelled orders count nowhere.

    A year without data has the same fields, all zero, and no best products. Without `path` the
    file that comes with jobq is read. Raises DataError if it is missing or a row is malformed.
    """
    lines = read_lines(path or data_file())
    booked = [line for line in lines if line.booked_on.year == year and line.entry != "cancelled"]
    sales = [line for line in booked if line.entry == "sale"]
    gross = sum(line.cents for line in sales)
    total = sum(line.cents for line in booked)
    months = _totals(booked, lambda line: line.booked_on.month)
    countries = _totals(booked, lambda line: line.country)
    products = _totals(booked, lambda line: line.product)
    best = sorted(products, key=lambda product: (-products[product], product))[:BEST]
    return {
        "orders": len({line.order_id for line in sales}),
        "lines": len(sales),
        "units": sum(line.units for line in sales),
        "gross_cents": gross,
        "refunds_cents": gross - total,
        "total_cents": total,
        "by_month": [months[month] for month in range(1, 13)],
        "by_country": {code: countries[code] for code in sorted({line.country for line in lines})},
        "best_products": [{"product": name, "total_cents": products[name]} for name in best],
    }


def data_file() -> Path:
    """Return the path of the file that comes with jobq, installed or in a checkout."""
    package = Path(__file__).parent
    installed = package / "_data" / "sales.csv"
    return installed if installed.exists() else package.parent / "data" / "sales.csv"


def read_lines(path: Path) -> list[Line]:
    """Return every row of the file, in its order; raise DataError naming the first bad one."""
    mend = "make_sales.py, which is kept beside the file, makes it anew"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): {mend}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}): {mend}") from error
    rows = csv.reader(io.StringIO(text), strict=True)
    try:
        return list(_lines(rows))
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}, line {rows.line_num}: {error}; {mend}") from error


def _lines(rows: Iterator[list[str]]) -> Iterator[Line]:
    # Every row is read, whatever the year: one with a broken date would drop out of all reports.
    if next(rows, None) != COLUMNS:
        raise ValueError(f"the header must be {','.join(COLUMNS)}")
    for row in rows:
        yield _line(row)


def _line(row: list[str]) -> Line:
    if len(row) != len(COLUMNS):
        raise ValueError(f"there are {len(row)} fields: there must be {len(COLUMNS)}")
    day, order_id, _, entry, _, product, country, quantity, price = row
    units, cents = _whole(quantity, "quantity"), _whole(price, "unit_price_cents")
    if entry not in {"sale", "refund", "cancelled"}:
        raise ValueError(f"entry is {entry!r}: it must be sale, refund or cancelled")
    if units == 0 or (units < 0) != (entry == "refund"):
        raise ValueError(f"quantity of a {entry} is {units}: below 0 is for refunds, 0 for none")
    if cents < 0:
        raise ValueError(f"unit_price_cents is {cents}: it must be 0 or more")
    return Line(
        date.fromisoformat(day),
        _whole(order_id, "order_id"),
        entry,
        product,
        country,
        units,
        units * cents,
    )


def _whole(text: str, column: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{column} is {text!r}: it must be a whole number") from None


def _totals(lines: Iterable[Line], key: Callable[[Line], K]) -> Counter[K]:
    """Return the cents of the lines, added up by key; a key that is not there counts 0."""
    totals = Counter[K]()
    for line in lines:
        totals[key(line)] += line.cents
    return totals
