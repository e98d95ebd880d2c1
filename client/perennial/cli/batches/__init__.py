"""Commands about batches: send, follow and inspect them."""
