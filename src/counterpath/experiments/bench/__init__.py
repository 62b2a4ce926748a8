"""How fast Counterpath is: its steps and searches beside other ways to do the same work."""
