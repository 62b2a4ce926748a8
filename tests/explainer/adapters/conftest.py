import pytest

from counterpath.models import surrogate


@pytest.fixture(autouse=True, scope="package")
def _haste() -> object:
    """Surrogates that learn for less long: what they are good for is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surrogate, "STEPS", 200)
        yield
