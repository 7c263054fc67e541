"""An empty slot."""
