"""Nova's Placement service over HTTP; needs the extra ``nova``."""
