"""Sources of batches beside the tools that write and read them."""
