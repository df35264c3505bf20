"""Makes the pages about units in docs/: `facts` reads, `pages` writes."""
