"""The algebra study: the four-phase protocol of [Parslow2026], section 7, with the controls that make it falsifiable.

`tasks` and `arms` (phase 1), `fixed_rotation` and `representation` (how they are run), `interpretability` (phase 4). Phases 2 and 3
are language and speech studies (`settings.algebra_jobs`); `costs` measures what a step of their arms takes.
"""
