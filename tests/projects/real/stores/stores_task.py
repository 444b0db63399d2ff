EXPECTED = {"duckdb": "10", "libpq": "True", "refused": "OperationalError"}


def use() -> dict[str, str]:
    """Query a database in memory, and fail to reach one that is not there."""
    import duckdb
    import psycopg

    try:
        psycopg.connect("host=127.0.0.1 port=9 dbname=x connect_timeout=2")
    except psycopg.Error as error:
        refused = type(error).__name__
    return {
        "duckdb": str(duckdb.sql("SELECT sum(i) FROM range(5) r(i)").fetchall()[0][0]),
        "libpq": str(psycopg.pq.__impl__ == "binary" and psycopg.pq.version() > 90000),
        "refused": refused,
    }
