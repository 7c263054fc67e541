"""geomix: does a sequence mixer that carries geometric structure do better than the same mixer without it?"""

__version__ = "0.1.0"
