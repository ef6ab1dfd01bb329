"""The Runwire server; private to it. Plugins import the public module `runwire` instead."""

__version__ = "0.1.0"
