import pytest

from counterpath.utils.errors import InputError, MissingExtraError, choose, require


def test_choose() -> None:
    assert choose("fruit", "apple", {"apple": 1}) == 1
    with pytest.raises(InputError, match=r"unknown fruit 'zzz'; choose one of: apple, pear"):
        choose("fruit", "zzz", {"apple": 1, "pear": 2})


def test_require_imports_or_names_the_extra() -> None:
    assert require("json", "flow", "reading").loads("1") == 1
    with pytest.raises(
        MissingExtraError, match=r"reading needs the library 'nowhere_to_be_found'.*counterpath\[flow\]"
    ):
        require("nowhere_to_be_found", "flow", "reading")
