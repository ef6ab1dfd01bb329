"""Runs inside one process, where a test must see or steer what HTTP cannot show."""
