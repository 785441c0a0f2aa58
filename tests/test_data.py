"""data/: the sales are what the generator makes, and hold what data/README.md promises."""

import csv
import hashlib
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"
README = (DATA / "README.md").read_text(encoding="utf-8")

Row = dict[str, str]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Return the rows of sales.csv, as text."""
    with (DATA / "sales.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.fixture(scope="module")
def by_key(rows: list[Row]) -> dict[tuple[str, str], Row]:
    """Return the rows by order and line."""
    return {(row["order_id"], row["line"]): row for row in rows}


@pytest.fixture
def generator(tmp_path: Path) -> Path:
    """Return a copy of the generator in a folder of its own."""
    return Path(shutil.copy(DATA / "make_sales.py", tmp_path))


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with the Python that runs the tests."""
    return subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, check=False
    )


def test_the_generator_makes_the_file_byte_for_byte(generator: Path) -> None:
    """Run anew, the generator writes exactly the file that is kept beside it."""
    assert run(generator).returncode == 0
    made = generator.with_name("sales.csv").read_bytes()
    assert made == (DATA / "sales.csv").read_bytes()


def test_check_accepts_the_file() -> None:
    """`--check` exits 0 on the file that is kept."""
    assert run(DATA / "make_sales.py", "--check").returncode == 0


@pytest.mark.parametrize("change", [None, b"2026-12-01,1,1,sale,,Kettle,DE,1,1\n"])
def test_check_refuses_any_other_file(generator: Path, change: bytes | None) -> None:
    """`--check` exits 1, says so and writes nothing if the file is missing or has one row more."""
    file = generator.with_name("sales.csv")
    if change is not None:
        file.write_bytes((DATA / "sales.csv").read_bytes() + change)
    before = file.exists() and file.read_bytes()
    checked = run(generator, "--check")
    assert checked.returncode == 1
    assert "is not what this program makes" in checked.stderr
    assert (file.exists() and file.read_bytes()) == before


def test_the_readme_names_the_file_it_describes(rows: list[Row]) -> None:
    """Checksum, number of rows, columns and example rows in README.md are those of the file."""
    content = (DATA / "sales.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() in README
    assert f"{len(rows):,} rows" in README
    assert re.findall(r"^\| `(\w+)` \|", README, flags=re.MULTILINE) == list(rows[0])
    examples = README.partition("```csv\n")[2].partition("```")[0].splitlines()
    assert len(examples) == 10
    assert set(examples) <= set(content.decode().splitlines())


def test_there_are_enough_order_lines(rows: list[Row]) -> None:
    """More than 50,000 lines were ordered, over the whole of 2000-01-01 to 2026-11-30."""
    ordered = [row["booked_on"] for row in rows if row["entry"] != "refund"]
    assert len(ordered) > 50_000
    days = {date.fromisoformat(day) for day in ordered}
    assert (min(days), max(days)) == (date(2000, 1, 1), date(2026, 11, 30))
    assert len(days) == (max(days) - min(days)).days + 1, "a day without an order"


def test_the_file_is_plain_sorted_utf8(rows: list[Row]) -> None:
    """LF line ends, no byte-order mark, composed characters; sorted by day, order and line."""
    content = (DATA / "sales.csv").read_bytes()
    assert b"\r" not in content
    assert content.startswith(b"booked_on,")
    assert unicodedata.is_normalized("NFC", content.decode())
    keys = [(row["booked_on"], int(row["order_id"]), int(row["line"])) for row in rows]
    assert keys == sorted(keys)


def test_order_and_line_name_a_row(rows: list[Row], by_key: dict[tuple[str, str], Row]) -> None:
    """No two rows have the same order and line."""
    assert len(by_key) == len(rows)


def test_every_refund_pays_back_a_sale(rows: list[Row], by_key: dict[tuple[str, str], Row]) -> None:
    """A refund names an earlier sale of its order; it differs in nothing but day and units."""
    refunds = [row for row in rows if row["entry"] == "refund"]
    assert len({(row["order_id"], row["refund_of"]) for row in refunds}) == len(refunds)
    for refund in refunds:
        sale = by_key[refund["order_id"], refund["refund_of"]]
        assert sale["entry"] == "sale"
        assert sale["booked_on"] < refund["booked_on"]
        assert -int(sale["quantity"]) <= int(refund["quantity"]) < 0
        for same in ("product", "country", "unit_price_cents"):
            assert sale[same] == refund[same]


def test_an_order_is_cancelled_as_a_whole(rows: list[Row]) -> None:
    """No order has both cancelled lines and others."""
    cancelled = {row["order_id"] for row in rows if row["entry"] == "cancelled"}
    others = {row["order_id"] for row in rows if row["entry"] != "cancelled"}
    assert cancelled
    assert not cancelled & others


def test_later_orders_have_higher_numbers(rows: list[Row]) -> None:
    """Order ids run from 1 without a gap, in the order of the days."""
    ids = [int(row["order_id"]) for row in rows if row["line"] == "1"]
    assert ids == list(range(1, len(ids) + 1))


AWKWARD: dict[str, Callable[[Row], bool]] = {
    "leap day 2000": lambda row: row["booked_on"] == "2000-02-29",
    "leap day 2024": lambda row: row["booked_on"] == "2024-02-29",
    "last day of a year": lambda row: row["booked_on"] == "2023-12-31",
    "first day of a year": lambda row: row["booked_on"] == "2024-01-01",
    "a gift": lambda row: row["unit_price_cents"] == "0",
    "Czech": lambda row: row["product"] == "Šálek",
    "French": lambda row: row["product"] == "Crème brûlée torch",
    "Japanese": lambda row: row["product"] == "抹茶 whisk",
    "a comma": lambda row: row["product"] == "Teapot, cast iron",
    "a quotation mark": lambda row: row["product"] == "Chef's knife 8\"",
    "Namibia": lambda row: row["country"] == "NA",
    "Norway": lambda row: row["country"] == "NO",
}


@pytest.mark.parametrize("what", AWKWARD)
def test_the_awkward_rows_are_there(rows: list[Row], what: str) -> None:
    """Sales hold each kind of awkward row that one row alone can show."""
    assert any(row["entry"] == "sale" and AWKWARD[what](row) for row in rows)


def test_some_refunds_are_partial_and_some_a_year_late(
    rows: list[Row], by_key: dict[tuple[str, str], Row]
) -> None:
    """Some refunds pay back a part of the units; some fall in a later year than their sale."""
    refunds = [row for row in rows if row["entry"] == "refund"]
    pairs = [(row, by_key[row["order_id"], row["refund_of"]]) for row in refunds]
    assert any(int(refund["quantity"]) + int(sale["quantity"]) > 0 for refund, sale in pairs)
    assert any(refund["booked_on"][:4] > sale["booked_on"][:4] for refund, sale in pairs)
