# %% [markdown]
# # A number as the target
#
# A support vector machine predicts the strength of concrete in MPa. The question is not which class, but which range.

# %%
"""A regressor of scikit-learn: what would bring its prediction into a range?

python examples/regression.py
"""

from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import counterpath as cp

data = cp.datasets.load("concrete")
features, strength = data.train.drop(columns=data.target), data.train[data.target]
model = make_pipeline(StandardScaler(), SVR(C=100)).fit(features, strength)

explainer = cp.Explainer(latent_dim=6, hidden=(96, 48), epochs=100, seed=0, progress=False)
explainer.fit(data.train, target=data.target, schema=data.schema, model=model)
print(explainer.diagnostics())

# %%
mixtures = data.test.drop(columns=data.target)
weak = mixtures[(explainer.predict(mixtures) < 30).to_numpy()].head(12)
result = explainer.explain(weak, target_range=(40, 50), lock=["age"], plans=2)
result

# %%
found = result.counterfactuals[result.valid]
predicted = model.predict(found[list(features.columns)])
inside = ((predicted >= 40) & (predicted <= 50)).sum()
print(f"The regressor predicts 40 to 50 MPa for {inside} of {len(found)} answers.")
result.plot_changes()

# %%
result.plot_path(weak.index[0], plan=1)
