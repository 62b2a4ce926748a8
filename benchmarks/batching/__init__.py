"""Whether batch jobs keep their promises: what `benchmarks/batch.py` and the tests share, a module a promise."""
