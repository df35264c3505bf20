"""Makes docs/filters.md and docs/weighers.md of the units: `facts` reads, `pages` writes."""
