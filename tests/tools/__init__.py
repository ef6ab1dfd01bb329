"""Tests of app.tools."""
