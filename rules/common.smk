# Names that all stages share. Folders: DATA holds what is prepared, once for all runs on a corpus, in a folder for each
# split that is named by what the split is made with; RUN what one run finds; state/ the resumable states of all
# trainings, by hash, which Snakemake never touches. STUDIES are the studies of the configuration by their folder below results/,
# which the wildcard `study` stands for in the files of a training.

from geomix.settings import evaluation_sets, seeds_of, stages, training_settings
from geomix.settings.instances import studies_of

CORPUS = {**config["corpus"], "path": os.path.expandvars(config["corpus"]["path"] or "") or None}
DATA = f"data/{CORPUS['name']}"
RUN = f"results/{config['run']}"
LOGS = f"logs/{config['run']}"
# one training of a speech study: an arm, a track, a seed
ARM = "results/{study}/{track}/{arm}/seed{seed}"
ARM_LOGS = "logs/{study}/{track}/{arm}/seed{seed}"

STUDIES = studies_of(config)
# the study that the configuration itself is
SPEECH = STUDIES[config["run"]]

STUDY = config["study"]
ARMS = config["arms"]
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


def studies_of_kind(kind):
    """Pattern of the names of the studies of a kind."""
    return "|".join(re.escape(study.name) for study in STUDIES.values() if study.kind == kind) or "(?!)"


wildcard_constraints:
    study=studies_of_kind("speech"),
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
    track, arm, trainings = wildcards.get("track", ""), wildcards.arm, STUDIES[wildcards.study].trainings
    seeds = [seed for *names, seed in trainings if names == [track, arm]]
    return -seeds.index(int(wildcards.seed)) if int(wildcards.seed) in seeds else 0


def training_threads(wildcards):
    """CPU threads of a training, and of decoding with its model."""
    return STUDIES[wildcards.study].config["training"]["threads"]
