"""The answers of the API, a file for each noun: what `core.requests` returns and `/openapi.json` describes.

They are typed dicts, so that an answer costs no more than its JSON: a job is polled thousands of times. Parts of them
that are stored as they are have their files beside this folder (`gate`, `report`, `error`, `base`, `usage`).
"""
