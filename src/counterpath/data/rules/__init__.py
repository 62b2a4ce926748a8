"""Rules between features: relations that hold, what a change brings with it, and features that follow from others.

One small language, which is parsed and never evaluated as code:

    NumTradesOpen <= NumTotalTrades                        a linear relation, in original units
    rent + savings <= 0.5 * income
    job in ["Sales", "Tech"]                               what a feature is allowed to be
    education == "Doctorate" => age >= 27                  an implication; conditions are joined by `and`
    education up => age up by 2 per level                  a change that implies another
    marital_status: "Married" -> "Never-married" forbidden a transition; `*` is any category, `allowed` names the rest
    debt_ratio = debt / income                             a derived feature: recomputed, and never searched
    education_num = code(education) + 1                    the number of a category, counted from 0

Expressions have + - * / and brackets; those of derived features also abs, exp, log, sigmoid, sqrt and tanh.

A name that is no word, such as capital-gain, is put in backquotes; the names of a schema are known without them. Dates
are written as text: opened >= "2013-08-14".

A rule about a value that is a code or a gap does not apply: "no record" is neither more nor less than a number. A
relation holds for such a row, a premise is not met, and a derived feature stays as it is.

`kinds` are the rules themselves, on any values; `expressions` their arithmetic; `language` makes a rule of a text;
`checks` says whether rules can hold at once, and what training rows say about them. Searches ask a `ruleset`, on
encoded rows: `values` reads these, `matrix` looks at all rules of a kind at once.
"""
