"""Rules by which files become labelled images, shared by the server and the client.

This package imports only the standard library, because `tools.client_sync` copies it to
`client/perennial/pack/rules`. A test compares the copies.
"""
