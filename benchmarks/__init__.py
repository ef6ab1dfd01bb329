"""Benchmarks of Runwire: `python -m benchmarks [names…]`. Each prints one table of figures and ratios from one run."""
