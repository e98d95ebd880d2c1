"""Resources of the client, one class per noun of the API."""
