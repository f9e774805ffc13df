#!/usr/bin/env bash
# The pipeline as Slurm jobs: bash submit.sh, with the settings of ../steps.sh in the environment, which
# sbatch hands on. Further options of sbatch (account, partition, memory) are in SBATCH_ARGS.
source "$(dirname "$0")/../steps.sh"
read -ra sbatch_args <<< "${SBATCH_ARGS:-}"

submit() { # job that must have succeeded or "", array or "", step
    local options=(--parsable --requeue --job-name "bigmc-$3" --output "$BIGMC_FOLDER/%x-%j.log")
    [[ -z "$1" ]] || options+=(--dependency "afterok:$1" --kill-on-invalid-dep=yes)
    [[ -z "$2" ]] || options+=(--array "$2")
    sbatch "${options[@]}" "${sbatch_args[@]}" "$here/step.sbatch" "$3" "$here/.." | cut -d ';' -f 1
}
here=$(cd "$(dirname "$0")" && pwd)

job=$(submit "" "0-$((BIGMC_PARTS - 1))" ingest_part)
job=$(submit "$job" "" ingest)
job=$(submit "$job" "0-$((${#alphas[@]} - 1))" train)
job=$(submit "$job" "0-$((${#alphas[@]} - 1))" evaluate)
job=$(submit "$job" "" publish)
submit "$job" "" test_best
