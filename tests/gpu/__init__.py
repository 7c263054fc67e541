"""Every kernel on a machine with a GPU, in under ten minutes: `PYTHONPATH=src python3 -m tests.gpu` (`make gpu-test`).

It needs torch, Triton, numpy and PyYAML, no other package, no network and no pytest; torch 2.11 and newer. The parts that do not
need a GPU run with `--device cpu`, which the tests do.
"""
