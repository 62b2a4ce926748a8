# %% [markdown]
# # XGBoost
#
# A model that can only be asked, on a DataFrame with text columns. Trees have no gradient: the explainer follows a
# differentiable stand-in, a surrogate, and asks the trees themselves whether a row is a counterfactual. Validity is
# theirs, not the surrogate's.

# %%
"""A model that can only be asked: XGBoost in a scikit-learn pipeline, on a DataFrame with text columns.

python examples/xgboost_model.py
"""

from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from xgboost import XGBClassifier

import counterpath as cp

data = cp.datasets.load("adult-carla")
rows = data.train.sample(2000, random_state=0).drop(columns="fnlwgt")  # a survey weight, not a property of anybody
features, income = rows.drop(columns=data.target), rows[data.target]
schema = cp.Schema.infer(features)

text = [feature.name for feature in schema if feature.categories]
trees = XGBClassifier(n_estimators=60, max_depth=4, learning_rate=0.2, n_jobs=1)
model = make_pipeline(make_column_transformer((OneHotEncoder(), text), remainder="passthrough"), trees)
model.fit(features, income)

# %% [markdown]
# How well does the surrogate stand in for the trees?

# %%
explainer = cp.Explainer(latent_dim=8, hidden=(96, 48), epochs=60, max_steps=80, seed=0, progress=False)
explainer.fit(rows, target=data.target, schema=schema, model=model)
agreement = explainer.diagnostics().agreement
print(f"Surrogate and XGBoost agree on {agreement.held_out:.1%} of held-out rows,")
print(f"{agreement.drawn:.1%} of generated rows and {agreement.visited:.1%} of the rows that searches visit.\n")

# %%
people = data.test.drop(columns=["fnlwgt", data.target]).head(100)
people = people[model.predict(people) == 0].head(20)
result = explainer.explain(people, target_class=1, confidence=0.6)
print(result)
result.select(list(people.index[:5]))

# %% [markdown]
# The pipeline itself, on the rows exactly as they were returned:

# %%
found = result.counterfactuals[result.valid]
chance = model.predict_proba(found)[:, 1]
print(f"XGBoost gives {(chance >= 0.6).sum()} of {len(found)} counterfactuals the probability 0.6 or more.")
for label, reason in result.status["reason"][~result.valid].items():
    print(f"Nothing was found for {label}: {reason}")
result.plot_changes()
