"""Layers of multivectors, and linear maps that share their numbers: what models and studies build from.

`grades` (parameters and norms by grade), `linear` (sum of A x B), `product` (the geometric product), `activations`, `norm`,
`embedding`, `adapters`; `maps` (linear maps that replace dense ones).
"""
