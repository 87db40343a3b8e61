"""Speed of the code akg_py generates for the CPU, beside its peers.

`python -m tests.benchmarks.cpu` from the top of a checkout; see `__main__`.
"""
