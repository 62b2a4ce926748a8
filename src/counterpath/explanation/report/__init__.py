"""Reports: self-contained pages of HTML."""
