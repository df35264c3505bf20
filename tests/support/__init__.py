"""Helpers that tests share, such as clocks and private servers; no tests."""
