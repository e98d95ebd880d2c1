"""Every document that crosses a process or is stored: a file for each, typed and frozen.

It knows neither torch nor the database, so that the API, the worker and the job child read the same words.
"""
