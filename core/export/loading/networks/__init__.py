"""Networks by the way they answer: the last class of each file."""
