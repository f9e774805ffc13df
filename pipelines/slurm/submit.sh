#!/usr/bin/env bash
# The pipeline as Slurm jobs: bash submit.sh, with the settings of ../steps.sh in the environment, which
# sbatch hands on. BIGMC_TIME is the time limit of a job (by default 12 hours; a job that is cut off resumes when it is
# submitted again) and BIGMC_JOB_MEMORY what a job may take (by default the limit of bigmc and a gigabyte for the
# process itself). Further options of sbatch (account, partition) are in SBATCH_ARGS.
source "$(dirname "$0")/../steps.sh"
read -ra sbatch_args <<< "${SBATCH_ARGS:-}"

# numfmt reads 2G, 512M and 1.5Gi; bigmc also 2GB, 512mb and 1.5 GiB.
limit=$(numfmt --from=auto "$(sed -E 's/ //g; s/B$//; s/I$/i/' <<< "${BIGMC_MEMORY^^}")")
memory=${BIGMC_JOB_MEMORY:-$((limit / 1000000 + 1000))M}

submit() { # dependency or "", array or "", step
    local options=(--parsable --requeue --job-name "bigmc-$3" --output "$BIGMC_FOLDER/%x-%j.log")
    options+=(--mem "$memory" --time "${BIGMC_TIME:-12:00:00}")
    [[ -z "$1" ]] || options+=(--dependency "$1" --kill-on-invalid-dep=yes)
    [[ -z "$2" ]] || options+=(--array "$2")
    sbatch "${options[@]}" "${sbatch_args[@]}" "$here/step.sbatch" "$3" "$here/.." | cut -d ';' -f 1
}
here=$(cd "$(dirname "$0")" && pwd)

job=$(submit "" "0-$((BIGMC_PARTS - 1))" ingest_part)
job=$(submit "afterok:$job" "" ingest)
job=$(submit "afterok:$job" "0-$((${#alphas[@]} - 1))" train)
job=$(submit "aftercorr:$job" "0-$((${#alphas[@]} - 1))" evaluate) # each as soon as its own model is there
job=$(submit "afterok:$job" "" publish)
submit "afterok:$job" "" test_best
