"""Values that must not change unless a version is raised, and the settings hashes of every shipped configuration."""
