"""Uploads: large bodies, streamed to a file, checked on the way, and committed once. In order:

1. `head`         what the request's head shows is checked before a byte of its body is read.
2. `upload`       the order of an upload: a place, precheck, receive, commit.
3. `repeat`       its idempotency key, where it has one: an answer that was given is given again.
4. `body`         the bytes as they come, at no more memory than two buffers; `form` finds the file among them.
5. `spool_file`   the file in the spool: counted, hashed, looked at early.

A file that comes in pieces: `tus` reads and writes the headers, `piece` receives one, `assembled` makes the
file of all.
"""
