"""Reports about a batch's images by the network that starts from them."""
