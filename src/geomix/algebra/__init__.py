"""Clifford algebras as tables (`tables`, numpy only), multivector operations (`operations`) and rotors (`rotors`) in PyTorch."""

from geomix.algebra.tables import PRODUCTS, Algebra, SignedTriplets, pair_count

__all__ = ["PRODUCTS", "Algebra", "SignedTriplets", "pair_count"]
