"""Random damage to everything that a person can hand to geomix: what comes of it is success or one sentence.

`python -m tests.fuzz --minutes 10` is `make fuzz`; `test_fuzz.py` runs the same cases, fewer and always the same ones.
"""
