"""Nova's own unit tests of its scheduler, answered by ours."""
