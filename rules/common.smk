# Names that all stages share. Folders: DATA holds what is prepared, once for all runs on a corpus, in a folder for each
# split that is named by what the split is made with; RUN what one run finds; state/ the resumable states of all
# trainings, by hash, which Snakemake never touches.

from geomix.settings import evaluation_sets, seeds_of, stages, training_settings, trainings_of

CORPUS = {**config["corpus"], "path": os.path.expandvars(config["corpus"]["path"] or "") or None}
DATA = f"data/{CORPUS['name']}"
RUN = f"results/{config['run']}"
LOGS = f"logs/{config['run']}"
# one arm, track and seed
ARM = f"{RUN}/{{track}}/{{arm}}/seed{{seed}}"

STUDY = config["study"]
ARMS = config["arms"]
TRAINING = config["training"]
EVALUATION_SETS = evaluation_sets(config)
SPLITS = stages.splits_of(config)
KEYS = {split: stages.split_key(config, split) for split in SPLITS}
FOLDERS = {split: f"{DATA}/{split}-{key}" for split, key in KEYS.items()}
MANIFESTS = {split: f"{folder}/manifest/{split}.tsv" for split, folder in FOLDERS.items()}
# a split's folder and its manifest as patterns of a rule
SPLIT = f"{DATA}/{{split}}-{{key}}"
MANIFEST = f"{SPLIT}/manifest/{{split}}.tsv"
FEATURES, FRAMES = {"float32": ("features", "f32"), "float16": ("features-float16", "f16")}[config["features"]["dtype"]]
UNITS = f"{config['tokenizer']['kind']}-{config['tokenizer']['size'] or 'all'}"
TOKENIZER = f"{FOLDERS['train']}/tokenizer/{UNITS}"


wildcard_constraints:
    track="own|espnet",
    arm="[A-Za-z0-9][A-Za-z0-9_.-]*",
    seed="[0-9]+",
    set="|".join(map(re.escape, EVALUATION_SETS)),
    split="|".join(map(re.escape, SPLITS)),
    key="|".join(set(KEYS.values())),
    factor=r"[0-9.]+",


def features_of(split, factor=1.0):
    """Data file with the features of a split at a speed."""
    return f"{FOLDERS[split]}/{FEATURES}/{split}-sp{factor}.{FRAMES}"


def first_seed_first(wildcards):
    """Priority of a job: the first seed of all arms and tracks before the next ones."""
    seeds = seeds_of(STUDY, wildcards.track)
    return -seeds.index(int(wildcards.seed)) if int(wildcards.seed) in seeds else 0


def of_study(pattern):
    """`pattern` filled in for each track, arm and seed of the study, and for each evaluation set where it has one."""
    return [
        pattern.format(track=track, arm=arm, seed=seed, set=name)
        for track, arm, seed in trainings_of(STUDY)
        for name in (EVALUATION_SETS if "{set}" in pattern else [""])
    ]
