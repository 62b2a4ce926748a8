"""Tables: what their columns are, how they become tensors and back, and some that are ready to use."""

from counterpath.data.constraints import Bounds, Constraints
from counterpath.data.encoding import Encoder
from counterpath.data.impute import Imputer
from counterpath.data.schema import Feature, Schema
from counterpath.data.tables import read_table, to_pandas

__all__ = ["Bounds", "Constraints", "Encoder", "Feature", "Imputer", "Schema", "read_table", "to_pandas"]
