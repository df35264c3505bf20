"""A demo cloud behind the console: hosts, agents and a steady stream of requests in one process."""
