"""Helper processes of predict, started by `api.predict`, in an image's order.

1. `decoder` turns files and arrays into pixels: without torch, without keys, under limits.
2. `helper` holds torch: `networks` keeps versions in memory, and `serving` predicts with them.
3. `graph_maker` makes the graph of a version that is used often, for the helper's `graphs`.
"""
