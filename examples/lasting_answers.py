"""Answers that last: what would still be accepted after the next training, and which given answers have expired?

python examples/lasting_answers.py
"""

import counterpath as cp


def main() -> None:
    """Ask for answers that survive retraining, and look at them again after another training."""
    data = cp.datasets.load("concrete")
    table = data.train.assign(strong=(data.train[data.target] > 40).map({True: "yes", False: "no"}))
    table = table.drop(columns=data.target)
    features = table.drop(columns="strong")

    explainer = cp.Explainer(seed=0, progress=False).fit(table, target="strong", family=True)
    weak = features[(explainer.predict(features) == "no").to_numpy()].head(10)
    plain = explainer.explain(weak, target_class="yes")
    lasting = explainer.explain(weak, target_class="yes", robust=0.9)
    for name, result in {"plain": plain, "robust": lasting}.items():
        measured = result.measures()
        print(f"{name}: L1 {measured['l1'].mean():.2f}, valid after {measured['valid_after'].mean():.2f}")
    print(lasting.sentences.iloc[0])

    newer = cp.Explainer(seed=1, epochs=2, progress=False).fit(table.sample(frac=0.9, random_state=1), target="strong")
    for name, result in {"plain": plain, "robust": lasting}.items():
        checked = explainer.recheck(result, model=newer.predict_proba)
        print(f"{name}: {checked['answer'].value_counts().to_dict()}")


if __name__ == "__main__":
    main()
