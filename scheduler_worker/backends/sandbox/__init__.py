"""Processes for code that administrators bring: one file each, confined, warm, killed whole."""
