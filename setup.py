"""Everything about the package is declared in pyproject.toml; this file serves tools that look for a setup.py."""

from setuptools import setup

setup()
