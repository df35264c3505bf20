"""Makes what follows from the code.

Pages about units: `facts` reads them, `pages` writes. `operations` fills tables of other pages.
`alerts` and `board` write the files for Prometheus and Grafana.
"""
