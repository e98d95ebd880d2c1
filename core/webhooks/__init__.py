"""Webhooks: receivers, the outbox, and signed deliveries."""
