"""The commands as they are declared: names, options, help. Light to import; the work is loaded when a command runs."""
