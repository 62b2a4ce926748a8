"""`counterpath demo`."""

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpath import __version__
from counterpath.cli import options
from counterpath.cli.evaluate import rejected_rows, show_comparison
from counterpath.cli.fit import fit_resumably
from counterpath.cli.output import say, show
from counterpath.utils.errors import CounterpathError, InputError

if TYPE_CHECKING:
    import pandas as pd

    from counterpath.data.datasets import Dataset
    from counterpath.explainer.compare import Comparison
    from counterpath.explainer.explainer import Explainer
    from counterpath.explanation import Explanation

PARAMETERS: dict[str, Any] = {"method": "geodesic", "hidden": (256, 128), "epochs": 30, "seed": 0}
"""A smaller and shorter fit than the default one: good enough for Adult, and done in a minute or two on two cores."""
DATA = "adult"
TITLE = "Adult: what would have to change for an income of over 50,000 dollars"
PLANS = 3  # as many as stand side by side in the report
COMPARED = ("sgd", "rsgd")
"""Beside the method of the demo: those that are done in seconds, and find somebody. No two people have all that is
immutable in common, the census weight among it, so `face` and `nearest`, which go from person to person, do not."""
_SENTENCES = 4  # enough to see what they are like; the report has all of them


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/demo"),
    rows: Annotated[int, typer.Option(help="How many people to explain.")] = 30,
    device: options.Device = "auto",
) -> None:
    """The main job on shipped data: fit, explain, compare, report."""
    options.check_positive(rows=rows)
    from counterpath.data import datasets
    from counterpath.utils.devices import resolve_device

    resolve_device(device)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; expected a folder")
    started = time.monotonic()
    data = datasets.load(DATA)
    explainer = fitted(data, device)
    labels, predicted = data.test[data.target].to_numpy(), explainer.predict(data.test).to_numpy()
    rejected = data.test[rejected_rows(labels, predicted, data.desired_class)]
    people = rejected.head(rows)
    say(f"looking for {PLANS} plans each for {len(people)} of {len(rejected):,} people whom the model rightly rejects")
    result, comparison = explained(explainer, people, data)
    show(f"{len(data.test):,} test rows, accuracy {(labels == predicted).mean():.3f}; {len(people)} people explained.")
    show("\nIn words, those who need the least:")
    for sentence in _easiest(result):
        show(f"  {sentence}")
    show("\nThe first plan of everybody, beside other methods:\n")
    show_comparison(comparison)
    show("")
    about = {"model": "counterpath demo", "rows": f"{len(people)} of the test rows of Adult"}
    result.to_html(out / "report.html", title=TITLE, baselines=comparison.results, by=["sex", "race"], about=about)
    result.to_json(out / "explanation.json")
    result.to_csv(out / "counterfactuals.csv")
    for name in ("report.html", "explanation.json", "counterfactuals.csv"):
        show(f"wrote {out / name}")
    say(f"done in {time.monotonic() - started:.0f} s")


def explained(explainer: "Explainer", people: "pd.DataFrame", data: "Dataset") -> "tuple[Explanation, Comparison]":
    """Several plans for everybody by the method of the demo, and the first of them beside what other methods find."""
    from counterpath.explainer.compare import Comparison

    asked = {"target_class": data.desired_class, "directions": data.directions}
    result = explainer.explain(people, plans=PLANS, **asked)
    others = {method: explainer.explain(people, method=method, **asked) for method in COMPARED}
    results = {PARAMETERS["method"]: result.plan(1), **others}
    return result, Comparison(results, {name: float(each.provenance["seconds"]) for name, each in results.items()})


def _easiest(result: "Explanation") -> "pd.Series":
    """The first plans that change least, in words."""
    first = result.plan(1)
    cost = first.measures()["l1"].where(first.valid)
    return first.sentences[cost.sort_values(kind="stable").index[:_SENTENCES]]


def fitted(data: "Dataset", device: str) -> "Explainer":
    """The demo's explainer: from the cache if it is there and whole, else fitted and kept there."""
    from counterpath.data.datasets import Card, cache_folder
    from counterpath.explainer.explainer import Explainer

    # All that a cached model depends on.
    content = json.dumps([__version__, Card.of(DATA).sha256, PARAMETERS], sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()[:12]
    folder = cache_folder() / "models" / f"adult-demo-{key}"
    if folder.exists():
        try:
            explainer = Explainer.load(folder, device=device)
        except (CounterpathError, OSError) as error:
            say(f"the model in the cache cannot be used, and is fitted again: {error}")
            shutil.rmtree(folder)
        else:
            say(f"using the model in {folder}")
            return explainer
    say(f"fitting a model to {len(data.train):,} people, once; it is kept in {folder}")
    explainer = Explainer(**PARAMETERS, device=device)
    fit_resumably(explainer, [data.train], data.target, schema=data.schema, folder=folder)
    return explainer
