"""The weighers: how good a host is that can take the instance. Higher is better."""
