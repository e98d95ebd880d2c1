"""Rules by which files become labelled images, shared by the client and the service.

They lie in the client, which is installed without the service; the service requires the client of
its version. A folder is therefore read like an archive of it. This package imports only the
standard library, since the service applies it to archives from strangers.
"""
