"""How torch's threads wait for each other: they spin for microseconds, and then sleep.

A search is thousands of small steps, and after each of them the threads meet. By default they spin until all are there,
which on a machine with other work takes the very core that the last one needs: the same search then takes ten times
as long and more, for the same bits. If they sleep at once, waking them takes as long as the step itself. A short while
is as fast as spinning on an idle machine, and nearly as good as sleeping on a busy one. This must be said before torch
is first imported; who imports torch before Counterpath keeps torch's default, and a value in the environment is left
as it is.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "4000")
