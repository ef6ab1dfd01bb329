"""Runs: accepting, driving, following, ending them. The journal is the only truth; everything else is a view of it."""
