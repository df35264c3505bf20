"""The test suite in lanes side by side, and what each test costs."""
