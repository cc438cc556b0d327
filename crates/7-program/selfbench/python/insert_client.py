"""A simple Python client of the insert benchmark, for comparison with dbdyno's.

It is not the public insert benchmark client. It does what such a client does, in the way that is
usual in Python: one INSERT statement with all rows of a commit as text, autocommit, then the three
range queries in turn, all rows fetched. What it spends of CPU is printed as JSON.
"""

import argparse
import json
import random
import resource
import string
import time

LETTERS = string.ascii_letters + string.digits


def connect(connector, socket, schema):
    if connector == "mysqldb":
        import MySQLdb

        connection = MySQLdb.connect(unix_socket=socket, user="root", db=schema)
    else:
        import pymysql

        connection = pymysql.connect(unix_socket=socket, user="root", database=schema)
    connection.autocommit(True)
    return connection


def row(when):
    data = "".join(random.choices(LETTERS, k=5)) + "xxxxx"
    return "('%s',%d,%d,%d,%d,'%s')" % (
        when,
        random.randrange(1000),
        random.randrange(100000),
        random.randrange(10000),
        random.randrange(500),
        data,
    )


def insert(cursor, table, rows, rows_per_commit):
    head = (
        "INSERT INTO %s (dateandtime, cashregisterid, customerid, productid, price, data) VALUES "
        % table
    )
    done = 0
    while done < rows:
        count = min(rows_per_commit, rows - done)
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        cursor.execute(head + ",".join([row(when) for _ in range(count)]))
        done += count
    return done


def query(cursor, table, seconds):
    shapes = [
        ("price, dateandtime, customerid", "price >=", 500),
        ("productid, customerid, price", "productid >=", 10000),
        ("cashregisterid, customerid, price", "cashregisterid >", 999),
    ]
    done = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for columns, condition, values in shapes:
            cursor.execute(
                "SELECT %s FROM %s WHERE %s %d ORDER BY %s LIMIT 10"
                % (columns, table, condition, random.randrange(values), columns)
            )
            cursor.fetchall()
            done += 1
    return done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--connector", choices=["pymysql", "mysqldb"], default="pymysql")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--schema", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--rows-per-commit", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=0)
    args = parser.parse_args()
    connection = connect(args.connector, args.socket, args.schema)
    cursor = connection.cursor()
    # Imports and the login are no part of the work.
    cursor.execute("SELECT 1")
    cursor.fetchall()
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    rows = insert(cursor, args.table, args.rows, args.rows_per_commit)
    queries = query(cursor, args.table, args.seconds) if args.seconds else 0
    after, end = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    print(
        json.dumps(
            {
                "rows": rows,
                "queries": queries,
                "user_s": after.ru_utime - before.ru_utime,
                "system_s": after.ru_stime - before.ru_stime,
                "wall_s": end - start,
            }
        )
    )


main()
