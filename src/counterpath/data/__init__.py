"""Tables and samples, and their way to tensors and back."""
