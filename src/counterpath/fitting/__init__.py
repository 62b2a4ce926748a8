"""What an explanation rests on: models that were fitted to a table, how good they are, and how they are kept."""
