# The steps of the pipeline: each is one bigmc command and safe to repeat. A step that was killed goes on, a
# finished one does nothing. run.sh does them one after the other; slurm/submit.sh as jobs of a cluster.
#
#   BIGMC_SOURCE   files to learn from: a path, a folder or a glob
#   BIGMC_FOLDER   folder for models and what is known of them, on a disk that every machine sees
#   BIGMC_DATA     dataset; by default data.bigmc in that folder
#   BIGMC_INGEST   options of bigmc ingest, quoted as in a shell (columns, hashing, splits)
#   BIGMC_TRAIN    options of bigmc train sparse besides --alpha
#   BIGMC_ALPHAS   penalties to try
#   BIGMC_PARTS    processes that ingest at once
#   BIGMC_MEMORY   memory limit of each process

set -euo pipefail
: "${BIGMC_SOURCE:?name the files to learn from}" "${BIGMC_FOLDER:?name a folder for dataset and models}"
: "${BIGMC_INGEST:=--text text --label label --split train=0.8,valid=0.1,test=0.1}"
: "${BIGMC_TRAIN:=}" "${BIGMC_ALPHAS:=1e-3 1e-4 1e-5}" "${BIGMC_PARTS:=4}" "${BIGMC_MEMORY:=2GB}"

words() { [[ -z "$1" ]] || xargs printf '%s\n' <<< "$1"; }
mapfile -t ingest_options < <(words "$BIGMC_INGEST")
mapfile -t train_options < <(words "$BIGMC_TRAIN")
read -ra alphas <<< "$BIGMC_ALPHAS"
data=${BIGMC_DATA:-$BIGMC_FOLDER/data.bigmc}
common=(--memory "$BIGMC_MEMORY" --json)

mkdir -p "$BIGMC_FOLDER"

ingest_part() { # number of the part, from 0
    bigmc ingest "$BIGMC_SOURCE" --to "$data" "${ingest_options[@]}" --part "$1/$BIGMC_PARTS" "${common[@]}"
}
ingest() {
    bigmc ingest "$BIGMC_SOURCE" --to "$data" "${ingest_options[@]}" "${common[@]}"
}
train() { # number of the penalty, from 0
    bigmc train sparse "$data" --to "$BIGMC_FOLDER/${alphas[$1]}.model" --alpha "${alphas[$1]}" \
        "${train_options[@]}" "${common[@]}"
}
evaluate() { # number of the penalty, from 0
    bigmc evaluate "$BIGMC_FOLDER/${alphas[$1]}.model" "$data" --split valid \
        --to "$BIGMC_FOLDER/${alphas[$1]}.json" "${common[@]}"
}
publish() {
    local evaluations=("${alphas[@]/#/$BIGMC_FOLDER/}")
    bigmc publish "${evaluations[@]/%/.json}" --to "$BIGMC_FOLDER/best.model" --json
}
test_best() {
    bigmc evaluate "$BIGMC_FOLDER/best.model" "$data" --split test --to "$BIGMC_FOLDER/best.json" "${common[@]}"
}
