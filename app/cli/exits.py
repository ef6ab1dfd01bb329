"""The exit codes of the command line, in one table."""

SUCCESS = 0
FAILED = 1
"""The run ended in error, a tool's call failed, or a target of `rm` or `cancel` was refused."""
USAGE = 2
SERVER = 3
"""The server cannot be reached, was lost for good, or refused the request."""
CANCELLED = 4
NOT_FOUND = 5
WAITS = 6
"""The run waits for a person and will not go on by itself."""
DETACHED = 130
"""Ctrl-C; a run that was followed goes on."""
PIPE_CLOSED = 141
"""As a program that died of SIGPIPE: nobody reads any more."""

BY_STATUS = {"success": SUCCESS, "error": FAILED, "cancelled": CANCELLED, "interrupted": WAITS}
"""What a run's status makes of the command that followed it."""

HELP = """\b
Exit codes:
  0    success
  1    the run or the call ended in error; a target of rm or cancel was refused
  2    wrong usage
  3    the server cannot be reached, or refused the request
  4    the run was cancelled
  5    there is no such run, step, call, interrupt, tool or agent
  6    the run waits for a person
  130  Ctrl-C (a run that was followed goes on)
  141  the reader of the output left

\b
Environment:
  RUNWIRE_URL      the server (default: 127.0.0.1 at RUNWIRE_PORT or 8080)
  RUNWIRE_API_KEY  the key; never an option, as those stand in the process list
"""
"""The end of `runwire --help`."""
