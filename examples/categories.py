# %% [markdown]
# # Categories, and what people call them
#
# Ordered and unordered categories, values that may not occur together, features that people cannot change unless they
# say so, and sentences in people's own words.

# %%
"""Categories: their order, their names for people, pairs that cannot be, and features that are only unlocked.

python examples/categories.py
"""

from dataclasses import replace

import counterpath as cp

data = cp.datasets.load("german")
for feature in list(data.schema)[:4]:
    print(f"{feature.name:18} {feature.kind:12} {', '.join(map(str, feature.categories))}")

# %% [markdown]
# The schema knows the order of categories and what people call them. `forbidden` names what cannot be: here, that
# somebody without a job skills up to management.

# %%
manager = "management or self-employed or highly qualified"
schema = replace(data.schema, forbidden=({"job": [manager], "employment": ["unemployed"]},))
explainer = cp.Explainer(latent_dim=16, hidden=(128, 64), epochs=300, seed=0, progress=False)
explainer.fit(data.train, target=data.target, schema=schema)
applicants = data.test.drop(columns=data.target)
bad = applicants[(explainer.predict(applicants) == "bad").to_numpy()].head(15)
result = explainer.explain(bad, target_class="good", directions=data.directions)
for sentence in result.sentences.head(4):
    print("-", sentence)

# %%
result

# %% [markdown]
# Some features are locked unless a request unlocks them, because people cannot usually change them.

# %%
print("Locked unless unlocked:", ", ".join(schema.not_actionable), "· never:", ", ".join(schema.immutable))
freed = explainer.explain(bad, target_class="good", unlock=schema.not_actionable, directions=data.directions)
cost, less = (each.measures()["l1"][each.valid].mean() for each in (result, freed))
print(f"Mean L1 of the answers: {cost:.2f}; with these unlocked {less:.2f}.")
result.plot_changes()
