"""A mixer of a user's own: `path/to/file.py:Class` or `package.module:Class`, without a line in this package.

`source` reads the file and never runs it; `module` runs it.
"""
