"""The only home of psycopg and the only importer of `sql`."""
