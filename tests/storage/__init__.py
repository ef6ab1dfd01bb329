"""What is particular to one database, and the parts of storage that need none."""
