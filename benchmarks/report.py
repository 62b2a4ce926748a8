"""How long a report takes to write, and how large it is.

    python benchmarks/report.py --rows 20,200,2000 --pages 200,2000

Rejected rows of Adult are explained by the model of `counterpath demo`, and their report is written with the baseline
beside it, by subgroup, and with pages for the first rows. What is timed is the writing alone: what it shows is
computed before, measures included. Seconds are those of one core, the fewest of three times.
"""

import argparse
import tempfile
import time
from pathlib import Path

import counterpath as cp
from counterpath.cli.demo import TARGET, fitted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="20,200,2000", help="how many rows")
    parser.add_argument("--pages", default="200", help="how many of them have a page of their own")
    arguments = parser.parse_args()
    counts, pages = ([int(part) for part in text.split(",")] for text in (arguments.rows, arguments.pages))
    data = cp.datasets.load("adult-carla")
    explainer = fitted(data, "cpu")
    rejected = data.test[(explainer.predict(data.test) != TARGET).to_numpy()].head(max(counts))
    whole, nearest = (explainer.explain(rejected, TARGET, method=name) for name in (None, "nearest"))
    print("| rows | pages | seconds | MB |\n|---|---|---|---|")
    for count in counts:
        labels = rejected.index[:count].tolist()
        result, baseline = whole.select(labels), nearest.select(labels)
        for shown in sorted({min(each, count) for each in pages}):
            seconds, size = _measure(result, baseline, shown)
            print(f"| {count:,} | {shown:,} | {seconds:.1f} | {size / 1e6:.2f} |", flush=True)


def _measure(result: cp.Explanation, baseline: cp.Explanation, pages: int) -> tuple[float, int]:
    """The fewest seconds of three times, and the size of the file."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        for _ in range(3):
            result.measures(), baseline.measures()
            started = time.process_time()
            result.to_html(path, baselines={"nearest": baseline}, by=["sex", "race"], pages=pages)
            times.append(time.process_time() - started)
        return min(times), path.stat().st_size


if __name__ == "__main__":
    main()
