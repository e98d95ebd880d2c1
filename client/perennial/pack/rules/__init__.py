"""The rules by which files become labelled images, the same for the server and for the client.

Only the standard library is imported here: `tools.client_sync` copies this package to
`client/perennial/pack/rules`, where a test compares the copies.
"""
