# Names that all stages share. Folders: DATA holds what is prepared once for all runs on a corpus, RUN what one run finds,
# STATE the resumable states of its trainings, which Snakemake never touches.

from geomix.config import evaluation_sets, seeds_of, training_settings, trainings_of

DATA = f"data/{config['corpus']['name']}"
RUN = f"results/{config['run']}"
STATE = f"state/{config['run']}"
LOGS = f"logs/{config['run']}"
# one arm, track and seed
ARM = f"{RUN}/{{track}}/{{arm}}/seed{{seed}}"

STUDY = config["study"]
ARMS = config["arms"]
EVALUATION_SETS = evaluation_sets(config)
FEATURES = {"float32": "f32", "float16": "f16"}[config["features"]["dtype"]]
TOKENIZER = f"{DATA}/tokenizer/{config['tokenizer']['kind']}-{config['tokenizer']['size'] or 'all'}"


wildcard_constraints:
    track="own|espnet",
    arm="[A-Za-z0-9][A-Za-z0-9_.-]*",
    seed="[0-9]+",
    set="[A-Za-z0-9][A-Za-z0-9_.-]*",
    factor=r"[0-9.]+",


def first_seed_first(wildcards):
    """Priority of a job: the first seed of all arms and tracks before the next ones."""
    seeds = seeds_of(STUDY, wildcards.track)
    return -seeds.index(int(wildcards.seed)) if int(wildcards.seed) in seeds else 0


def of_study(pattern):
    """`pattern` filled in for each track, arm and seed of the study."""
    patterns = [pattern] if isinstance(pattern, str) else pattern
    return [
        each.format(track=track, arm=arm, seed=seed) for each in patterns for track, arm, seed in trainings_of(STUDY)
    ]
