"""Engines that decide which process drives a run, behind one port (`app.runs.ports.Dispatcher`)."""
