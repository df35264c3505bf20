"""Facts that the package declares twice: structs alike, and public classes of one name."""
