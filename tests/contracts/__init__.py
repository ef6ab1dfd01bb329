"""Contract suites: what every adapter of a port must do."""
