"""Uploads: large bodies, streamed to a file, checked in transit, and committed once. In order:

1. `request_checks`  the head of the request is checked before a byte of its body is read.
2. `upload`          the steps of an upload: a slot, precheck, receive, commit.
3. `repeat`          its idempotency key, if any: an earlier response is repeated.
4. `body`            the body as it arrives, in two buffers; `form` finds the file in it.
5. `spool_file`      the file in the spool: counted, hashed, its type checked early.

For a file that arrives in pieces, `tus` reads and writes the headers, `piece` receives one, and
`assembled_upload` joins them into one file.
"""
