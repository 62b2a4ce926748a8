# %% [markdown]
# # A scikit-learn pipeline
#
# The model is yours: a pipeline that takes a DataFrame with text and numbers. It is asked, and never opened.

# %%
"""A scikit-learn pipeline on a DataFrame: explained in a few lines, with the importance of features in the answers.

python examples/sklearn_pipeline.py
"""

from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import counterpath as cp

data = cp.datasets.load("adult")
rows = data.train.sample(3000, random_state=0)
features, income = rows.drop(columns=data.target), rows[data.target]
words = make_column_selector(dtype_exclude="number")
model = make_pipeline(
    make_column_transformer((OneHotEncoder(handle_unknown="ignore"), words), remainder="passthrough"),
    RandomForestClassifier(200, min_samples_leaf=4, random_state=0),
)
model.fit(features, income)

# %% [markdown]
# `fit` learns what people look like and how the pipeline decides; `explain` searches, and asks the pipeline itself
# whether an answer is one. Capital gains are locked: nobody decides upon them.

# %%
explainer = cp.Explainer(latent_dim=8, hidden=(96, 48), epochs=60, seed=0, progress=False)
explainer.fit(rows, target=data.target, schema=data.schema, model=model)
people = data.test[data.test["native-country"].isin(rows["native-country"])].drop(columns=data.target).head(100)
rejected = people[explainer.predict_proba(people)[">50K"].between(0.2, 0.49)].head(15)  # within reach
result = explainer.explain(rejected, target_class=">50K", plans=2, lock=["capital-gain", "capital-loss"])
result

# %%
found = result.counterfactuals[result.valid]
decided = model.predict(found[list(features.columns)])
print(f"The pipeline itself decides '>50K' for {(decided == '>50K').sum()} of {len(found)} answers.")

# %% [markdown]
# Which features do the answers use, and how far do they move? Bars are 95 % intervals over people. This describes the
# answers under what was asked for; it is no attribution of the model: what is held is at 0 however much the model
# relies on it.

# %%
print(result.importance().query("often > 0")[["often", "often_low", "often_high", "far"]].round(2))
result.plot_importance()
