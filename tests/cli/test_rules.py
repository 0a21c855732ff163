"""`dihedral rules`."""

from __future__ import annotations

import json


def test_rules_are_printed_as_tables_json_and_csv(cli, model_folder):
    options = ("rules", model_folder, "--min-support", 1)
    done = cli(*options, "--top", "3")
    assert done.code == 0 and "compositions" in done.out and "order matters" in done.out
    assert cli(*options, "--top", "2", "--csv").out.startswith("kind,body,head,score")
    rules = json.loads(cli(*options, "--top", "2", "--json").out)
    assert {"pca_confidence", "head_coverage", "agreement"} <= rules[0].keys()
    assert {"share", "chance", "kappa", "p"} <= rules[0]["agreement"].keys()
    refused = cli(*options, "--kind", "odd")
    assert refused.code == 2 and "kind is 'odd'; choose symmetric" in refused.err
