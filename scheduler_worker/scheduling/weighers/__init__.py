"""The weighers: how good a host is for the instance. Higher is better."""
