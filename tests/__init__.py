import os

# The tensors of the tests are small: a second thread gains nothing, and waits for its turn where others are at work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
