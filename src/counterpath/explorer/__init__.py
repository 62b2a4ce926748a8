"""The explorer: one page on which a person's decision, and what could change it, can be looked at from all sides."""
