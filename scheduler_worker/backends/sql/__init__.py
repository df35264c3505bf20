"""The policy store in a SQL database: SQLite, PostgreSQL or MariaDB."""
