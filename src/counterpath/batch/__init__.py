"""Explaining more rows than fit into memory: from files to files, shard by shard, on one machine or many."""

from counterpath.batch.running import Progress, run

__all__ = ["Progress", "run"]
