"""Paths of the API from names that people give."""

from urllib.parse import quote


def path(*parts: str | int) -> str:
    """`/v1/…` of these parts, each as one segment."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)
