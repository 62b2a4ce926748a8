# %% [markdown]
# # Plans that many people share
#
# One plan for each person is much to read. Which few plans serve most people, and is the way equally long for all?

# %%
"""The few plans that serve most people, and whether the way is equally long for groups of them.

python examples/shared_plans.py
"""

import counterpath as cp

data = cp.datasets.load("adult")
explainer = cp.Explainer(latent_dim=8, hidden=(96, 48), epochs=60, seed=0, progress=False)
explainer.fit(data.train.sample(4000, random_state=0), target=data.target, schema=data.schema)
people = data.test.drop(columns=data.target).head(150)
rejected = people[(explainer.predict(people) == "<=50K").to_numpy()].head(60)

# %%
plans = explainer.shared_plans(rejected, k=3, target_class=">50K")
print(plans)
print(f"Three plans serve {plans.coverage:.0%} of {len(rejected)} people.")
plans.plot_curve()

# %%
plans.table

# %% [markdown]
# The audit compares groups: who finds a way, and at what cost, with intervals and tests that count how many
# comparisons there are. With 60 people it shows little, and says so.

# %%
audit = explainer.audit(rejected, by=["sex"], target_class=">50K", find=False)
print(audit)
