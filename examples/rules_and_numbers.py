"""Rules between features, consequences, and a number as the target: what would make concrete strong enough?

python examples/rules_and_numbers.py
"""

import counterpath as cp


def main() -> None:
    """Explain mixtures that are too weak."""
    data = cp.datasets.load("concrete")
    schema = data.schema
    for suggestion in schema.suggest_rules(data.train[list(schema.names)]):
        print(f"holds in {100 * suggestion.holds:.1f} % of the rows: {suggestion.rule}")

    explainer = cp.Explainer(seed=0, progress=False).fit(data.train, target=data.target, schema=schema)
    weak = data.test[(explainer.predict(data.test) < 30).to_numpy()].head(5)
    result = explainer.explain(
        weak,
        target_range=(40, None),
        lock=["age"],
        rules=["water >= 0.25 * cement", "superplasticizer <= 0.15 * cement", "cement up => water up"],
    )
    print(result)
    print(result.sentences.iloc[0])


if __name__ == "__main__":
    main()
