"""Jobs: their states for clients, their notification, and write protection by fences."""
