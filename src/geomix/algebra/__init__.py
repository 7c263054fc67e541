"""Clifford algebras as tables (`structure_constants`, numpy only), multivector operations and rotors (PyTorch)."""

from geomix.algebra.structure_constants import PRODUCTS, Algebra, SignedTriplets, pair_count

__all__ = ["PRODUCTS", "Algebra", "SignedTriplets", "pair_count"]
