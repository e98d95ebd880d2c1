"""Build of the guide: the documents as a site that the service serves under `/docs/guide/`.

`python -m tools.guide` writes it. `sources` copies the documents and rewrites their links, Zensical
turns them into HTML with the templates of `theme`, and `pages` makes the index of the search and
checks every link of the result.
"""
