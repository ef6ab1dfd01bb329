"""The whole server as a process, over HTTP."""
