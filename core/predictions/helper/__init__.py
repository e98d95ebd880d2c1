"""Helper processes of predict, started by `api.predict`, in an image's order.

1. `decoder` turns files and arrays into pixels: without torch, without keys, under limits. 2.
`helper` holds torch; its `networks` are the versions in memory, and its `answers` their
predictions. 3. `graph_maker` makes the graph of a version that is used often, for the helper's
`graphs`.
"""
