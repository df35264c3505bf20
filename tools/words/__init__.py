"""What can be counted about words: in documents, docstrings and messages."""
