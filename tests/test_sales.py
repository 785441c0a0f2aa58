"""jobq.sales: the report agrees with SQL over the same file, and with sums done by hand."""

import csv
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobq import sales
from jobq.errors import DataError

HEADER = ",".join(sales.COLUMNS)

# Two orders, one of them with a gift and a refund in the next year; one order called off.
SMALL = f"""{HEADER}
2023-12-31,1,1,sale,,Šálek,CZ,3,700
2023-12-31,1,2,sale,,Gift box,CZ,1,0
2024-01-01,1,3,refund,1,Šálek,CZ,-2,700
2024-02-29,2,1,sale,,"Teapot, cast iron",NA,2,5000
2024-02-29,2,2,sale,,Kettle,NA,1,5000
2024-03-01,3,1,cancelled,,Kettle,JP,9,5000
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a file small enough to add up by hand."""
    path = tmp_path / "sales.csv"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_the_report_adds_up_by_hand(small: Path) -> None:
    """Refunds count in their own year, gifts count as units, cancelled orders nowhere."""
    assert sales.report(2024, small) == {
        "orders": 1,
        "lines": 2,
        "units": 3,
        "gross_cents": 15_000,
        "refunds_cents": 1_400,
        "total_cents": 13_600,
        "by_month": [-1_400, 15_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "by_country": {"CZ": -1_400, "JP": 0, "NA": 15_000},
        "best_products": [
            {"product": "Teapot, cast iron", "total_cents": 10_000},
            {"product": "Kettle", "total_cents": 5_000},
            {"product": "Šálek", "total_cents": -1_400},
        ],
    }


def test_a_later_refund_leaves_the_year_of_the_sale_alone(small: Path) -> None:
    """What was sold in 2023 stays in the report of 2023, though it was paid back in 2024."""
    report = sales.report(2023, small)
    assert (report["gross_cents"], report["refunds_cents"]) == (2_100, 0)
    assert (report["orders"], report["lines"], report["units"]) == (1, 2, 4)


@pytest.mark.parametrize("year", [1999, 2027, 2100])
def test_a_year_without_data_gives_an_empty_report(year: int) -> None:
    """The shape is that of any other year; every number is 0, and no product is best."""
    full = sales.report(2024)
    numbers = ("orders", "lines", "units", "gross_cents", "refunds_cents", "total_cents")
    empty = dict.fromkeys(numbers, 0) | {
        "by_month": [0] * 12,
        "by_country": dict.fromkeys(full["by_country"], 0),
        "best_products": [],
    }
    assert list(empty) == list(full)
    assert sales.report(year) == empty


def test_at_most_five_products_are_best_and_equals_go_by_name(tmp_path: Path) -> None:
    """Of six products that sold alike the first five of the alphabet are listed."""
    path = tmp_path / "sales.csv"
    rows = [f"2024-01-01,1,{n},sale,,{name},DE,1,100" for n, name in enumerate("FBDAEC", start=1)]
    path.write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    best = sales.report(2024, path)["best_products"]
    assert [product["product"] for product in best] == list("ABCDE")


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    """Load the data into SQLite, with nothing of jobq but the path."""
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE TABLE sales (booked_on TEXT, order_id INTEGER, line INTEGER, entry TEXT, "
        "refund_of INTEGER, product TEXT, country TEXT, quantity INTEGER, "
        "unit_price_cents INTEGER, cents INTEGER AS (quantity * unit_price_cents))"
    )
    with sales.data_file().open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    connection.executemany("INSERT INTO sales VALUES (?,?,?,?,?,?,?,?,?)", rows)
    yield connection
    connection.close()


@pytest.mark.parametrize("year", [2000, 2009, 2024, 2026])
def test_the_report_agrees_with_sql(database: sqlite3.Connection, year: int) -> None:
    """Every field is what SQLite computes from the same file."""

    def ask(columns: str, where: str, rest: str = "") -> list[Any]:
        query = f"SELECT {columns} FROM sales WHERE booked_on LIKE ? AND {where} {rest}"  # noqa: S608 - the parts are the literals below
        return database.execute(query, (f"{year}-%",)).fetchall()

    report = sales.report(year)
    sold = ask("count(DISTINCT order_id), count(*), sum(quantity), sum(cents)", "entry = 'sale'")
    assert [tuple(report[n] for n in ("orders", "lines", "units", "gross_cents"))] == sold
    assert [(-report["refunds_cents"],)] == ask("sum(cents)", "entry = 'refund'")
    kept = "entry <> 'cancelled'"
    assert [(report["total_cents"],)] == ask("sum(cents)", kept)
    months = ask("CAST(substr(booked_on, 6, 2) AS INTEGER), sum(cents)", kept, "GROUP BY 1")
    assert {n: cents for n, cents in enumerate(report["by_month"], start=1) if cents} == dict(
        months
    )
    countries = ask("country, sum(cents)", kept, "GROUP BY 1")
    assert {code: cents for code, cents in report["by_country"].items() if cents} == dict(countries)
    best = ask("product, sum(cents)", kept, "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5")
    assert [(b["product"], b["total_cents"]) for b in report["best_products"]] == best


def test_every_split_of_the_total_adds_up() -> None:
    """Months and countries each add up to the total, which is gross less refunds."""
    report = sales.report(2025)
    assert report["total_cents"] > 0
    assert report["total_cents"] == report["gross_cents"] - report["refunds_cents"]
    assert report["total_cents"] == sum(report["by_month"]) == sum(report["by_country"].values())


def test_the_report_is_found_in_an_installed_package(tmp_path: Path) -> None:
    """Laid out as the wheel does it, with the data in jobq/_data, the package finds its file."""
    package = tmp_path / "jobq"
    (package / "_data").mkdir(parents=True)
    (package / "_data" / "sales.csv").write_text(SMALL, encoding="utf-8")
    (package / "__init__.py").touch()
    for module in ("sales.py", "errors.py"):
        shutil.copy(Path(sales.__file__).with_name(module), package)
    program = "import json; from jobq import sales; print(json.dumps(sales.report(2024)))"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(ran.stdout)["total_cents"] == 13_600


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the file and says how to make it anew."""
    with pytest.raises(DataError, match=r"no\.csv cannot be read .*make_sales\.py"):
        sales.report(2024, tmp_path / "no.csv")


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """Latin-1 is refused, not guessed at."""
    path = tmp_path / "sales.csv"
    path.write_bytes(f"{HEADER}\n2024-01-01,1,1,sale,,Crème,FR,1,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not UTF-8"):
        sales.report(2024, path)


MALFORMED = {
    "2024-01-01,1,1,sale,,Kettle,DE,two,100": "quantity is 'two': it must be a whole number",
    "2024-01-01,1,1,sale,,Kettle,DE,1,9.95": "unit_price_cents is '9.95'",
    "2024-01-01,one,1,sale,,Kettle,DE,1,100": "order_id is 'one'",
    "2024-01-01,1,1,sale,,Kettle,DE,-1,100": "quantity of a sale is -1",
    "2024-01-01,1,1,refund,1,Kettle,DE,1,100": "quantity of a refund is 1",
    "2024-01-01,1,1,sale,,Kettle,DE,0,100": "quantity of a sale is 0",
    "2024-01-01,1,1,sale,,Kettle,DE,1,-100": "unit_price_cents is -100",
    "2024-01-01,1,1,gift,,Kettle,DE,1,100": "entry is 'gift'",
    "2023-02-29,1,1,sale,,Kettle,DE,1,100": "day",
    "2024-01-01,1,1,sale,,Teapot, cast iron,DE,1,100": "there are 10 fields",
    "2024-01-01,1,1,sale,,Ket": "there are 6 fields",
    '2024-01-01,1,1,sale,,"Kettle': "unexpected end of data",
}


@pytest.mark.parametrize("row", MALFORMED)
def test_a_malformed_row_is_named(small: Path, row: str) -> None:
    """Whatever year is asked for, the error names the line, the value and the rule."""
    small.write_text(SMALL + row, encoding="utf-8")
    with pytest.raises(DataError, match=rf"sales\.csv, line 8: .*{MALFORMED[row]}"):
        sales.report(2026, small)


@pytest.mark.parametrize("text", ["", "\n", "year,cents\n2024,1\n"])
def test_another_header_is_refused(small: Path, text: str) -> None:
    """An empty file, or one with other columns, is not taken for sales."""
    small.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="the header must be booked_on,order_id"):
        sales.report(2024, small)
