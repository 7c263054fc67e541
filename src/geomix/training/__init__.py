"""Training: the loop, its schedules, checkpoints, averaging and run record.

Nothing here knows what is trained: a model is a module that returns a dictionary with a "loss", and a `loop.Task` says
what the batches are and how the model is judged.
"""
