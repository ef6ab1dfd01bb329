"""Chat models: the catalog that picks one, and a client for each provider."""
