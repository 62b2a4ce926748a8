"""The paper's experiments, callers of everything else."""
