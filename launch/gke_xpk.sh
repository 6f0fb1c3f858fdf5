#!/usr/bin/env bash
# A run on a GKE cluster of TPUs through xpk; see --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: launch/gke_xpk.sh run    --cluster C --workload W --type TYPE [options] COMMAND ...
       launch/gke_xpk.sh delete --cluster C --workload W [options]

run: submits `posenc_jax COMMAND ...` as a workload of xpk (pip install xpk). The image is python:3.12 with this folder,
so submit from a clean checkout; every pod installs requirements first, unless --image brings them.

  --type TYPE      of a slice: v5litepod-256, v6e-16, v5p-128, ...     --slices N      (1)
  --zone Z         the cluster's                                       --project P     (gcloud's own)
  --image IMAGE    with posenc_jax and jax[tpu] installed              --dry-run       print the command, run none

  launch/gke_xpk.sh run --cluster tpus --workload bert --zone us-west4-a --type v5litepod-16 \
    pretrain --config configs/bert.py:base --data gs://bucket/rows --workdir gs://bucket/bert

xpk starts the workload again after exit code 75 (interrupted, everything saved) and after those of signals. Data and
workdir belong into a bucket: pods share no disk. tpu7x is to be had in this way alone.
TEXT
}

fail() { echo "error: $1" >&2; exit 2; }

root=$(cd "$(dirname "$0")/.." && pwd)
dry_run=0 cluster='' workload='' type='' slices=1 zone='' project='' image=''
if [ "${1:-}" = --dry-run ]; then dry_run=1; shift; fi
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  run | delete) action=$1; shift ;;
  '') usage >&2; exit 2 ;;
  *) fail "no action '$1'; see launch/gke_xpk.sh --help" ;;
esac
while [[ ${1:-} == -* ]]; do
  flag=${1%%=*}
  case "$flag" in
    -h | --help) usage; exit 0 ;;
    --dry-run) dry_run=1; shift; continue ;;
    --cluster | --workload | --type | --slices | --zone | --project | --image) ;;
    *) fail "no option '$flag'; see launch/gke_xpk.sh --help" ;;
  esac
  if [[ $1 == *=* ]]; then value=${1#*=}; else value=${2:-}; shift; fi
  if [ -z "$value" ] || [[ $value == --* ]]; then fail "$flag has no value"; fi
  shift
  printf -v "${flag#--}" %s "$value"
done
[ -n "$cluster" ] || fail "--cluster is missing"
[ -n "$workload" ] || fail "--workload is missing"

quoted() { local word; for word in "$@"; do printf '%s ' "${word@Q}"; done; }
act() { if [ "$dry_run" = 1 ]; then quoted "$@"; echo; else "$@"; fi; }

where=(--cluster "$cluster" --workload "$workload")
[ -z "$zone" ] || where+=(--zone "$zone")
[ -z "$project" ] || where+=(--project "$project")
if [ "$action" = delete ]; then
  [ $# -eq 0 ] || fail "delete takes no command, but '$1' was given"
  act xpk workload delete "${where[@]}"
  exit
fi

[ -n "$type" ] || fail "run wants --type, such as v5litepod-16"
[ $# -gt 0 ] || fail "run wants a command of posenc_jax, such as pretrain ..."
line="exec python -m posenc_jax $(quoted "$@")"
if [ -n "$image" ]; then
  source=(--docker-image "$image")
else
  source=(--base-docker-image python:3.12 --script-dir "$root")
  line="pip install --quiet -e '.[tpu]' && $line"
fi
act xpk workload create "${where[@]}" --tpu-type "$type" --num-slices "$slices" "${source[@]}" --max-restarts 100 \
  --restart-on-exit-codes 75 --termination-grace-period-seconds 180 --command "$line"
