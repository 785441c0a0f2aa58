"""Make sales.csv, the invented sales of an invented kitchenware shop.

    python data/make_sales.py            write the file
    python data/make_sales.py --check    exit 1 if the file is not what this program makes

The bytes are the same with every Python from 3.11 on and on every system. Chance comes from
`Random.random()` alone, whose sequence for a seed Python promises to keep ("Notes on
Reproducibility" in the documentation of `random`); all else is integer arithmetic.
"""

import argparse
import csv
import io
import random
from bisect import bisect
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import accumulate, count
from pathlib import Path
from typing import NamedTuple, TypeVar

SEED = 718
FIRST, LAST = date(2000, 1, 1), date(2026, 11, 30)
FILE = Path(__file__).with_name("sales.csv")

T = TypeVar("T")


class Line(NamedTuple):
    """One row of the file; README.md beside it describes the columns."""

    booked_on: date
    order_id: int
    line: int
    entry: str
    refund_of: int | None
    product: str
    country: str
    quantity: int
    unit_price_cents: int


class Product(NamedTuple):
    """What the shop sells, from which year on, and about how much it cost in 2000."""

    name: str
    since: int
    cents_in_2000: int


class Country(NamedTuple):
    """Where the shop sells, from which year on; the code is that of ISO 3166-1."""

    code: str
    since: int


# What is drawn from a table is drawn as often as the number beside it says.
PRODUCTS = {
    Product("Apron", 2000, 1900): 6,
    Product("Bread tin", 2000, 1400): 7,
    Product("Chef's knife 8\"", 2000, 5900): 8,  # a quotation mark, which CSV doubles
    Product("Crème brûlée torch", 2005, 3400): 4,
    Product("Cutting board", 2000, 2400): 9,
    Product("Jalapeño roaster", 2014, 2600): 2,
    Product("Kettle", 2000, 3900): 9,
    Product("Measuring jug", 2000, 900): 8,
    Product("Moka pot", 2003, 2900): 8,
    Product("Pepper mill", 2000, 2200): 7,
    Product("Rolling pin", 2000, 1100): 6,
    Product("Salad bowl", 2002, 2700): 5,
    Product("Smørrebrød board", 2011, 3100): 3,
    Product("Spätzle press", 2008, 4200): 3,
    Product("Teapot, cast iron", 2006, 6400): 5,  # a comma, which CSV puts in quotes
    Product("Šálek", 2000, 700): 10,
    Product("抹茶 whisk", 2017, 1600): 7,
}
GIFT = Product("Gift box", 2000, 0)  # added to some orders, on the house

COUNTRIES = {
    Country("AT", 2000): 9,
    Country("CH", 2001): 8,
    Country("CZ", 2004): 7,
    Country("DE", 2000): 40,
    Country("DK", 2003): 5,
    Country("ES", 2006): 8,
    Country("FR", 2001): 20,
    Country("GB", 2002): 16,
    Country("IT", 2004): 11,
    Country("JP", 2015): 6,
    Country("NA", 2010): 1,  # Namibia, which many a tool reads as "not available"
    Country("NL", 2000): 10,
    Country("NO", 2005): 4,  # Norway, which YAML 1.1 reads as "false"
    Country("PL", 2007): 9,
    Country("US", 2012): 13,
}

LINES_PER_ORDER = {1: 55, 2: 25, 3: 12, 4: 6, 5: 2}
UNITS_PER_LINE = {1: 70, 2: 20, 3: 4, 4: 4, 6: 1, 12: 1}

# Orders a day are the product of three: hundredths by year from 2000 on (a dip in 2009, a jump
# in 2020), percent by month from January on, percent by weekday from Monday on.
BY_YEAR = (
    *(110, 120, 115, 130, 150, 170, 195, 220, 235, 190),
    *(215, 240, 260, 275, 295, 315, 335, 360, 380, 395),
    *(560, 610, 520, 490, 505, 530, 560),
)
BY_MONTH = (85, 80, 90, 95, 100, 90, 80, 80, 95, 105, 130, 170)
BY_WEEKDAY = (110, 100, 95, 95, 90, 95, 115)


# The chances below are one in so many.
CANCELLED, GIFTS, REFUNDS, LATE_REFUNDS = 50, 20, 25, 10


class Dice:
    """Seeded chance in whole numbers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random  # noqa: S311 - invented sales guard no secret

    def below(self, n: int) -> int:
        """Return one of 0, 1, … n - 1."""
        return int(self._random() * n)

    def one_in(self, n: int) -> bool:
        """Return True once in n times."""
        return self.below(n) == 0

    def pick(self, weights: dict[T, int]) -> T:
        """Return one of the keys, each as often as its weight says."""
        place = bisect(list(accumulate(weights.values())), self.below(sum(weights.values())))
        return list(weights)[place]


def make_lines() -> Iterator[Line]:
    """Yield every line that an order brings about, in order of the orders."""
    dice = Dice(SEED)
    order_ids = count(1)
    for n in range((LAST - FIRST).days + 1):
        day = FIRST + timedelta(days=n)
        for _ in range(orders_on(day, dice)):
            yield from order(next(order_ids), day, dice)


def orders_on(day: date, dice: Dice) -> int:
    """Return how many orders come in: 20 chances, together as likely as the tables say."""
    millionths = BY_YEAR[day.year - 2000] * BY_MONTH[day.month - 1] * BY_WEEKDAY[day.weekday()]
    return max(1, sum(dice.below(20_000_000) < millionths for _ in range(20)))


def order(order_id: int, day: date, dice: Dice) -> Iterator[Line]:
    """Yield the lines of one order, then those of its refunds."""
    country = dice.pick({c: weight for c, weight in COUNTRIES.items() if c.since <= day.year}).code
    entry = "cancelled" if dice.one_in(CANCELLED) else "sale"
    on_sale = {p: weight for p, weight in PRODUCTS.items() if p.since <= day.year}
    products = [dice.pick(on_sale) for _ in range(dice.pick(LINES_PER_ORDER))]
    if dice.one_in(GIFTS):
        products.append(GIFT)
    lines = []
    for number, product in enumerate(products, start=1):
        quantity = 1 if product is GIFT else dice.pick(UNITS_PER_LINE)
        price = price_cents(product, day.year)
        lines.append(
            Line(day, order_id, number, entry, None, product.name, country, quantity, price)
        )
    yield from lines
    numbers = count(len(lines) + 1)
    for line in lines:
        if line.entry == "sale" and line.unit_price_cents > 0 and dice.one_in(REFUNDS):
            yield refund(line, next(numbers), dice)


def price_cents(product: Product, year: int) -> int:
    """Return the price in that year: 2 % of the first price more each year, and always …95."""
    if product is GIFT:
        return 0
    return product.cents_in_2000 * (100 + 2 * (year - 2000)) // 10_000 * 100 + 95


def refund(sale: Line, number: int, dice: Dice) -> Line:
    """Return the line that gives back some or all units of a sale, days or months after it."""
    days = 3 + dice.below(400 if dice.one_in(LATE_REFUNDS) else 30)
    return sale._replace(
        booked_on=sale.booked_on + timedelta(days=days),
        line=number,
        entry="refund",
        refund_of=sale.line,
        quantity=-1 - dice.below(sale.quantity),
    )


def make_file() -> bytes:
    """Return the file: UTF-8, LF line ends, sorted by day, order and line.

    A refund that falls after the last day has not happened yet, and is left out.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Line._fields)
    writer.writerows(sorted(line for line in make_lines() if line.booked_on <= LAST))
    return text.getvalue().encode()


def main() -> None:
    """Write the file, or say whether it is what it should be."""
    parser = argparse.ArgumentParser(description="Make sales.csv, which is invented data.")
    parser.add_argument("--check", action="store_true", help="compare the file, write nothing")
    check = parser.parse_args().check
    made = make_file()
    if not check:
        FILE.write_bytes(made)
    elif FILE.is_file() and FILE.read_bytes() == made:
        parser.exit(0, f"{FILE.name} is what this program makes\n")
    else:
        parser.exit(1, f"{FILE.name} is not what this program makes: run it without --check\n")


if __name__ == "__main__":
    main()
