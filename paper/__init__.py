"""The paper's tables and figures: the runs that they need, their records, and the pages made from them.

`python -m paper TARGET`, from the root of the repository, trains what is missing and writes a target. `reported` holds
the paper's values, `plan` the runs of each target, `runs` trains and records them, `studies` reads case studies off a
model, `tables`, `figures` and `sections` present the records, and `page` writes the files.
"""
