from counterpath.explainer.request import _ASKED, _OWN
from counterpath.explanation.provenance import LIBRARIES, made_since
from counterpath.explanation.report.recipe import _MEANINGS, recipe
from counterpath.explanation.tables import PLAN


def test_every_part_of_a_request_has_a_meaning() -> None:
    assert set(_MEANINGS) == {*_ASKED, *_OWN, PLAN}


def test_a_recipe_says_what_was_asked_for_and_not_what_was_left_open() -> None:
    request = {"method": "rsgd", "lock": ["a", "b"], "ranges": {"c": [1, None]}, "sparsify": True, "max_changes": None}
    text = "".join(recipe(request, {}, {"model": "<b>"}))
    assert '<th scope="row">model</th><td class="t">&lt;b&gt;</td>' in text
    assert '<th scope="row">lock</th><td class="t">a, b</td>' in text
    assert '<th scope="row">ranges</th><td class="t">c: 1, –</td>' in text
    assert '<th scope="row">tidy</th><td class="t">yes</td>' in text
    assert '<th scope="row">max_changes</th>' not in text


def test_what_is_made_knows_when_with_what_and_how_fast() -> None:
    made = made_since(0.0)
    assert list(made["versions"]) == ["counterpath", "python", *LIBRARIES]
    assert made["date"].endswith("+00:00")
    assert made["seconds"] > 0
