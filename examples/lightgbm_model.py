# %% [markdown]
# # LightGBM with columns of categories
#
# LightGBM takes columns of the dtype `category` as they are; so does the explainer, and what it returns has the same
# dtypes, ready to be given to the model.

# %%
"""LightGBM on columns of the dtype category, a decision threshold of its own, and several plans for everybody.

python examples/lightgbm_model.py
"""

from lightgbm import LGBMClassifier

import counterpath as cp

data = cp.datasets.load("adult")
rows = data.train.sample(3000, random_state=0)
text = [feature.name for feature in data.schema if feature.categories]
categories = {name: rows[name].astype("category").dtype for name in text}
rows = rows.astype(categories)
features, income = rows.drop(columns=data.target), rows[data.target]
model = LGBMClassifier(n_estimators=60, num_leaves=15, n_jobs=1, verbose=-1, random_state=0)
model.fit(features, income)

# %% [markdown]
# The bank accepts from a probability of 0.4 on: that is the `threshold` by which the model decides.

# %%
explainer = cp.Explainer(latent_dim=8, hidden=(96, 48), epochs=60, threshold={">50K": 0.4}, seed=0, progress=False)
explainer.fit(features, target=income, schema=data.schema, model=model)
known = data.test["native-country"].isin(rows["native-country"])  # a category that the model never saw is not explained
people = data.test[known].drop(columns=data.target).head(100).astype(categories)
people = people[(explainer.predict(people) == "<=50K").to_numpy()].head(12)
result = explainer.explain(people, target_class=">50K", plans=3, max_changes=3)
result

# %%
found = result.counterfactuals[result.valid]
chance = model.predict_proba(found[list(features.columns)])[:, list(model.classes_).index(">50K")]
print(f"LightGBM gives {(chance >= 0.4).sum()} of {len(found)} plans the probability 0.4 or more.")
print("Dtypes are as they were:", found.dtypes.equals(people.dtypes))
result.plot_changes()
