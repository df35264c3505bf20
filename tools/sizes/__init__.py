"""Bounds on the lines of code of files and functions."""
