# %% [markdown]
# # Your own table, and no model
#
# Columns of every kind, three classes, from a DataFrame to sentences and back from disk. Where no model is given, one
# is trained: a calibrated classifier that the answers are about.

# %%
"""Your own table, and no model: columns of every kind, three classes, from a DataFrame to sentences and back from disk.

python examples/own_dataframe.py
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import counterpath as cp

REGIONS = [f"region {letter}" for letter in "ABCDEFGHIJKL"]
EDUCATION = ["none", "school", "apprenticeship", "college", "university"]


# %% [markdown]
# Applications for a loan: income follows education and age, debt follows income, and the bank adds it all up.


# %%
def loans(count: int, seed: int) -> pd.DataFrame:
    """Made-up applications, with what the bank decided."""
    rng = np.random.default_rng(seed)
    region, education = rng.integers(len(REGIONS), size=count), rng.binomial(4, 0.55, count)
    age = rng.integers(21, 70, count)
    income = 14_000 * np.exp(0.22 * education + 0.008 * (age - 21) + 0.03 * region + rng.normal(0, 0.2, count))
    owner = rng.random(count) < 1 / (1 + np.exp(-(income - 30_000) / 8_000))
    debt = income * rng.gamma(2.0, 0.15, count) * np.where(owner, 1.5, 1.0)
    accounts = 1 + rng.poisson(income / 20_000)
    score = income / 10_000 - 1.5 * debt / 10_000 + owner + 0.2 * accounts + rng.normal(0, 0.3, count)
    return pd.DataFrame(
        {
            "region": np.array(REGIONS)[region],
            "education": pd.Categorical.from_codes(education, EDUCATION, ordered=True),
            "age": age,
            "income": income.round(-2),
            "debt": debt.round(-2),
            "accounts": accounts,
            "home_owner": owner,
            "decision": np.select([score < 2, score < 3.2], ["rejected", "checked by hand"], "granted"),
        },
        index=[f"application {number}" for number in range(count)],
    )


table = loans(2000, seed=0)
table.head()

# %% [markdown]
# Kinds follow from dtypes and values; what you know better is an override.

# %%
schema = cp.Schema.infer(table, target="decision", overrides={"accounts": {"lower": 0, "upper": 12}})
print(pd.DataFrame([{"feature": f.name, "kind": f.kind, "transform": f.transform} for f in schema]), "\n")

explainer = cp.Explainer(latent_dim=6, hidden=(96, 48), epochs=150, seed=0, progress=False)
explainer.fit(table, target="decision", schema=schema)
print(explainer.diagnostics())

# %% [markdown]
# What would have to change for those who are rejected, to be granted the loan?

# %%
rejected = loans(200, seed=1).drop(columns="decision")
rejected = rejected[explainer.predict(rejected) == "rejected"].head(40)
result = explainer.explain(rejected, target_class="granted", confidence=0.6)
print(f"{int(result.valid.sum())} of {len(result)} rejected applications have a way to 'granted'.\n")
for sentence in result.sentences.head(3):
    print("-", sentence)
result.select(list(rejected.index[:4]))

# %%
print(result.changes.head(8), "\n")
print(result.summary(by="home_owner").round(2).T)
result.plot_changes()

# %% [markdown]
# One path: how probability, uncertainty and every value move.

# %%
longest = result.measures()["steps"].idxmax()
result.plot_path(longest)

# %% [markdown]
# A fitted explainer is a folder; what is read from it gives the same answers.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = explainer.save(Path(folder) / "loans")
    again = cp.load(path).explain(rejected, target_class="granted", confidence=0.6)
    print("A loaded explainer gives the same answers:", again.counterfactuals.equals(result.counterfactuals))
