"""The archive of policies in a SQL database: SQLite, PostgreSQL or MariaDB."""
