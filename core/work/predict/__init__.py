"""The helper processes of predict, which `api.predict` starts, and their stations on the way of an image.

1. `decoder`    turns files and arrays into pixels: without torch, without keys, under limits.
2. `helper`     holds torch; its `networks` are the versions in memory, its `answers` what they say of pixels.
3. `graph_maker` makes the graph of a version that is asked often, for the helper's `graphs`.
"""
