"""One module for each version of the schema, in their order."""
