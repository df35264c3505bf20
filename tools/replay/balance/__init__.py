"""A simulated day of a cluster, under different balances.

The VMs' demand does not depend on the balance: bursts, the hours of the day, arrivals, departures
and failures of hosts are drawn first, from the seed alone (`day`). Then each balance gets the same
day (`simulation`), and what it did with it is compared (`cli`).
"""
