"""The rules of DESIGN §4 that SQL can see, as every test asks for them."""

from psycopg import Connection
from psycopg.rows import TupleRow

from app.db.statements import statement, statement_names


def broken_rules(conn: Connection[TupleRow]) -> list[object]:
    names = statement_names("check_")
    assert len(names) == 12
    return [row for name in names for row in conn.execute(statement(name)).fetchall()]
