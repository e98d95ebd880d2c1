"""Responses of the API, a file for each noun: the return values of operations.

`/openapi.json` describes them. They are typed dicts, so that a response costs no more than its
JSON: a job is polled thousands of times. Parts that are also stored have their files beside this
folder (`gate`, `report`, `error`, `base`, `usage`).
"""
