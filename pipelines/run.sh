#!/usr/bin/env bash
# The whole pipeline on one machine: bash pipelines/run.sh. The settings are in steps.sh. After a kill run it again.
source "$(dirname "$0")/steps.sh"

for ((part = 0; part < BIGMC_PARTS; part++)); do ingest_part "$part" & done
wait # a part that failed is done, or its error told, by the next step
ingest
for i in "${!alphas[@]}"; do
    train "$i"
    evaluate "$i"
done
publish
test_best
