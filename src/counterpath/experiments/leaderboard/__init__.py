"""Everybody's methods by everybody's measures under everybody's rules: what `counterpath leaderboard` compares."""
