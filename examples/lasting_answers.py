# %% [markdown]
# # Answers that last
#
# Models are trained again. What would still be accepted by the models that may follow, and which answers that were
# given have expired?

# %%
"""Answers that last: what would still be accepted after the next training, and which given answers have expired?

python examples/lasting_answers.py
"""

import counterpath as cp

data = cp.datasets.load("concrete")
table = data.train.assign(strong=(data.train[data.target] > 40).map({True: "yes", False: "no"}))
table = table.drop(columns=data.target)
features = table.drop(columns="strong")

# %% [markdown]
# `family=True` trains the models that may follow: the same training on other samples of the rows. `robust=0.9` asks
# that 90 % of them accept the answer, too.

# %%
explainer = cp.Explainer(seed=0, progress=False).fit(table, target="strong", family=True)
weak = features[(explainer.predict(features) == "no").to_numpy()].head(10)
plain = explainer.explain(weak, target_class="yes")
lasting = explainer.explain(weak, target_class="yes", robust=0.9)
for name, result in {"plain": plain, "robust": lasting}.items():
    measured = result.measures()
    print(f"{name}: L1 {measured['l1'].mean():.2f}, valid after {measured['valid_after'].mean():.2f}")
print(lasting.sentences.iloc[0])
lasting

# %% [markdown]
# Later a newer model is there. Which of the given answers still hold?

# %%
newer = cp.Explainer(seed=1, epochs=2, progress=False).fit(table.sample(frac=0.9, random_state=1), target="strong")
for name, result in {"plain": plain, "robust": lasting}.items():
    checked = explainer.recheck(result, model=newer.predict_proba)
    print(f"{name}: {checked['answer'].value_counts().to_dict()}")
lasting.plot_changes()
