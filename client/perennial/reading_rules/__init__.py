"""Rules by which files become labelled images, shared by the client and the service.

They lie in the client, which is installed without the service; the service requires the client of
its version. So a folder is read like an archive of it. This package imports only the standard
library: the service unpacks archives of strangers by it.
"""
