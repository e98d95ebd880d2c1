"""Remote sources: buckets and lists of URLs, fetched by the client while it sends them."""
