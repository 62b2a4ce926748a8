"""Other libraries' call signatures on Counterpath's search, so that switching takes one import.

`dice_ml` is called as DiCE is, `alibi` as alibi's counterfactual explainers are. What is searched, checked and returned
is what `Explainer.explain` does; what tunes the other library's own search has no counterpart here, and a warning says
so where it is set.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from counterpath.utils.errors import CounterpathWarning


def warn_unused(given: Mapping[str, Any], library: str) -> None:
    """Say which arguments tune another library's search, and are not looked at."""
    if given:
        names = ", ".join(sorted(given))
        text = f"{names}: set for the search of {library}, and not looked at here; see Explainer for its settings"
        warnings.warn(text, CounterpathWarning, stacklevel=3)
