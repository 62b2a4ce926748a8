"""The report: one HTML file, for the screen and for paper."""
