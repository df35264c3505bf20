"""Nova's own unit tests of filters and weighers, answered by ours."""
