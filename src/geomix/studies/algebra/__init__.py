"""The algebra study: the four-phase protocol of the k-blade article (section 7), with the controls that make it falsifiable.

`settings` (light), `tasks` and `arms` (phase 1), `fixed_rotation` and `representation` (how they are run), `verdict` (the decision
rule), `components` (phase 2), `architectures` (phase 3), `interpretability` (phase 4).
"""
