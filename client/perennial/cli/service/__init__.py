"""Commands about the service: login, keys, webhooks, catalogue."""
