"""How torch's threads wait for each other: they spin for microseconds, and then sleep. Import this before torch.

A search is thousands of small steps, and the threads synchronize after each of them. By default they spin until all are
there, which on a busy machine takes the very core that the last one needs: the same search then takes ten times as
long or more, for the same bits. If they sleep at once, waking them takes as long as the step itself. A short spin is as
fast as a long one on an idle machine, and nearly as good as sleeping on a busy one.

OpenMP reads the setting when torch is first imported: a program that imports torch before Counterpath keeps torch's
default. A value that is set in the environment is left as it is.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "4000")
