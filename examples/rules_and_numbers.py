# %% [markdown]
# # Rules between features
#
# What would make concrete strong enough, and is still concrete? Rules hold in every row of every path; a rule may be an
# inequality, or say what a change brings with it.

# %%
"""Rules between features, consequences, and a number as the target: what would make concrete strong enough?

python examples/rules_and_numbers.py
"""

import counterpath as cp

data = cp.datasets.load("concrete")
schema = data.schema
for suggestion in schema.suggest_rules(data.train[list(schema.names)]):
    print(f"holds in {100 * suggestion.holds:.1f} % of the rows: {suggestion.rule}")

# %%
explainer = cp.Explainer(seed=0, progress=False).fit(data.train, target=data.target, schema=schema)
weak = data.test[(explainer.predict(data.test) < 30).to_numpy()].head(5)
asked = {"target_range": (40, None), "lock": ["age"]}
rules = ["water >= 0.25 * cement", "superplasticizer <= 0.15 * cement", "cement up => water up"]
result = explainer.explain(weak, rules=rules, **asked)
print(result)
print(result.sentences.iloc[0])
result

# %% [markdown]
# Without rules the answers are nearer, and some break them.

# %%
free = explainer.explain(weak, **asked)
for name, each in {"with rules": result, "without": free}.items():
    mixed = each.counterfactuals
    broken = (mixed["superplasticizer"] > 0.15 * mixed["cement"] + 1e-6) | (
        mixed["water"] < 0.25 * mixed["cement"] - 1e-6
    )
    print(f"{name}: mean L1 {each.measures()['l1'].mean():.2f}, {int(broken.sum())} of {len(each)} break a rule")
result.plot_path(weak.index[0])
