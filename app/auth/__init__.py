"""Who may call: keys become principals."""
