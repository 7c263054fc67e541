"""The second track of the speech study: the same arms, data and recipe in ESPnet v.202611, unpatched.

ESPnet lives in an environment of its own (`make espnet`). Modules that run there import it: `encoder`, `run`, `agreement`,
`speed`; the others (`environment`, `data`, `settings`, `weights`, `launch`) do not, and are what the workflow calls.
"""
