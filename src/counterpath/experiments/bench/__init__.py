"""How fast Counterpath is: its steps and searches beside other implementations of the same work."""
