"""Modules for AI frameworks. Each needs its framework to be installed, and Onward needs none of them."""
