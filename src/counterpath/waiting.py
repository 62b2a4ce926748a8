"""How torch's threads wait for each other: asleep, not spinning.

A search is thousands of small steps, and after each of them the threads meet. By default they spin until all are there,
which on a machine with other work takes the very core that the last one needs: the same search then takes ten times
as long and more, for the same bits. This must be said before torch is first imported; who imports torch before
Counterpath keeps torch's default, and a value in the environment is left as it is.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
