"""What operators see of the server."""
