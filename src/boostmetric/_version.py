"""The version of the package, for the modules that cannot import the package itself."""

__version__ = "0.1.0"
