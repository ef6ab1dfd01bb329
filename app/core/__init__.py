"""Values only: what every other package speaks in. No I/O and no library that does any."""
