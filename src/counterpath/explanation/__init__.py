"""What an explanation is: the answers to a request as tables, and how to read, draw, group and keep them.

It holds data only, no models and no tensors, so an explanation that went through a file is as good as a new one.
"""

from counterpath.data.status import StatusCode
from counterpath.explanation.result import Explanation
from counterpath.explanation.tables import path_columns, plan_index

__all__ = ["Explanation", "StatusCode", "path_columns", "plan_index"]
