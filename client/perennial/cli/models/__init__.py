"""Commands about models and their versions."""
