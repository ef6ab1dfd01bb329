"""The decision loop: plan, act, observe, until the agent finishes or a limit stops it. Pure of I/O libraries."""
