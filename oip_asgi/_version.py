"""The version of the package, also for the server's metadata: a copied folder and a zip archive have no
metadata of their own."""

__version__ = "0.2.0"
