#!/usr/bin/env bash
# From nothing to a training Cloud TPU slice, and back; see --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: launch/tpu_vm.sh ACTION --name NAME --zone ZONE [--type TYPE] [options] [COMMAND ...]

  create    ask for the slice (a queued resource) and wait until it is there
  sync      copy this folder to every worker and make its .venv there
  run       start `posenc_jax COMMAND ...` on every worker; it goes on when this terminal closes
  watch     create, sync and run where needed; make a preempted slice anew and go on, until the run is finished
  exec      run `posenc_jax COMMAND ...` on every worker, and wait for it
  logs      follow the output of one worker (--worker 0)
  status    the state of the slice, and of the run on each worker
  stop      SIGTERM to the run: it saves and ends; end a watch first, it would start the run again
  delete    give the slice back

  --type TYPE       v5litepod-8, v6e-8, v5p-8, v4-8, ...           --spot            cheaper, may be preempted
  --version V       image of the workers (by TYPE)                 --project P       (gcloud's own)
  --setup 'LINE'    shell line run in the folder on every worker after each sync, such as
                    'gcloud storage cp -r gs://bucket/rows out/'
  --worker W        whose logs (0)                                 --dry-run         print the commands, run none

  launch/tpu_vm.sh watch --name bert --zone us-west4-a --type v5litepod-8 --spot \
    pretrain --config configs/bert.py:base --data gs://bucket/rows --workdir gs://bucket/bert

A run that ends with 75 (interrupted, everything saved) is started again by its worker. A slice that is preempted loses
its disks: with --spot, or more than one host, the workdir belongs into a bucket.
TEXT
}

fail() { echo "error: $1" >&2; exit 2; }

root=$(cd "$(dirname "$0")/.." && pwd)
poll=${POLL:-30} dry_run=0 spot=0 name='' zone='' type='' version='' project='' setup='' worker=0
if [ "${1:-}" = --dry-run ]; then dry_run=1; shift; fi
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  create | sync | run | watch | exec | logs | status | stop | delete) action=$1; shift ;;
  '') usage >&2; exit 2 ;;
  *) fail "no action '$1'; see launch/tpu_vm.sh --help" ;;
esac
while [[ ${1:-} == -* ]]; do
  flag=${1%%=*}
  case "$flag" in
    -h | --help) usage; exit 0 ;;
    --dry-run) dry_run=1; shift; continue ;;
    --spot) spot=1; shift; continue ;;
    --name | --zone | --type | --version | --project | --setup | --worker) ;;
    *) fail "no option '$flag'; see launch/tpu_vm.sh --help" ;;
  esac
  if [[ $1 == *=* ]]; then value=${1#*=}; else value=${2:-}; shift; fi
  if [ -z "$value" ] || [[ $value == --* ]]; then fail "$flag has no value"; fi
  shift
  printf -v "${flag#--}" %s "$value"
done
[ -n "$name" ] || fail "--name is missing"
[ -n "$zone" ] || fail "--zone is missing"
case "$action" in
  create | watch) [ -n "$type" ] || fail "$action wants --type, such as v5litepod-8" ;;
esac
case "$action" in
  run | watch | exec) [ $# -gt 0 ] || fail "$action wants a command of posenc_jax, such as pretrain ..." ;;
  *) [ $# -eq 0 ] || fail "$action takes no command, but '$1' was given" ;;
esac
[[ $type != v5e* ]] || fail "gcloud calls v5e v5litepod: --type v5litepod${type#v5e}"
case "$version:$type" in
  :v5lite*) version=v2-alpha-tpuv5-lite ;;
  :v5p*) version=v2-alpha-tpuv5 ;;
  :v6e*) version=v2-alpha-tpuv6e ;;
  :*) version=tpu-ubuntu2204-base ;;
esac

where=(--zone "$zone")
[ -z "$project" ] || where+=(--project "$project")
# The words as a shell would read them again.
quoted() {
  local word
  for word in "$@"; do
    if [[ $word =~ ^[A-Za-z0-9_./:=,@+-]+$ ]]; then printf '%s ' "$word"; else printf '%s ' "${word@Q}"; fi
  done
}
act() { if [ "$dry_run" = 1 ]; then quoted "$@"; echo; else "$@"; fi; }
queue() { act gcloud compute tpus queued-resources "$@" "${where[@]}"; }
on() { act gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --worker "$1" --command "$2"; }

# The state of the queued resource; empty where there is none.
state() {
  gcloud compute tpus queued-resources describe "$name" --format 'value(state.state)' "${where[@]}" 2>/dev/null || true
}

# All that is known of a slice that did not come up.
why() { queue describe "$name" --format 'yaml(state)' >&2 || true; }

create() {
  local options=(--node-id "$name" --accelerator-type "$type" --runtime-version "$version")
  [ "$spot" = 0 ] || options+=(--spot)
  queue create "$name" "${options[@]}" || return # `set -e` is off where the caller looks at the code
  if [ "$dry_run" = 1 ]; then
    queue describe "$name" --format 'value(state.state)'
    echo "# ... until that says ACTIVE"
    return
  fi
  while true; do
    case "$(state)" in
      ACTIVE) return 0 ;;
      FAILED | SUSPENDED | SUSPENDING) echo "error: $name did not come up: $(state)" >&2; why; return 1 ;;
    esac
    sleep "$poll"
  done
}

# Lines for the workers. The images have Python 3.10; uv brings a newer one.
# shellcheck disable=SC2016
{
  install='python3 -m pip install --quiet --user uv && PATH=$HOME/.local/bin:$PATH && uv python install 3.12 &&
make PYTHON="$(uv python find 3.12)" .venv/.runtime && .venv/bin/python -m pip install --quiet -e ".[tpu]"'
  running='[ ! -e run.code ] && [ -e run.pid ] && kill -0 "$(cat run.pid)" 2>/dev/null'
  ask="cd posenc_jax && if $running; then echo code=running; else echo code=\$(cat run.code 2>/dev/null || echo none); fi"
  end='kill -TERM "$(cat posenc_jax/run.pid)"'
}

sync_code() {
  local archive=posenc_jax.tgz copy="${TMPDIR:-/tmp}/posenc_jax-$UID-$name.tgz" # several may be watched from here
  act tar -czf "$copy" -C "$root" --exclude ./.venv --exclude ./.git --exclude ./out . &&
    act gcloud compute tpus tpu-vm scp "$copy" "$name:$archive" "${where[@]}" --worker all &&
    on all "mkdir -p posenc_jax && tar -xzf $archive -C posenc_jax && cd posenc_jax && $install${setup:+ && $setup}"
}

start() {
  on all "cd posenc_jax && if $running; then echo 'a run is going on already' >&2; exit 1; fi; rm -f run.code
RESTART=1 CODE_FILE=run.code setsid nohup launch/local.sh $(quoted "$@")>>run.log 2>&1 </dev/null & echo \$! >run.pid"
}

delete() { queue delete "$name" --force --quiet; }

anew() {
  echo "$name is gone; making it anew" >&2
  tries=0
  delete || true # looked at again in a moment
}

watch() {
  local codes tries=0 failures=0 had=0 # starts and slices that failed in a row; whether there ever was a slice
  if [ "$dry_run" = 1 ]; then
    create; sync_code; start "$@"; on all "$ask"
    echo "# ... until all say 0; if the slice is preempted, the next line and all of the above again"
    delete
    return
  fi
  while true; do
    codes=unknown
    case "$(state)" in
      ACTIVE) had=1 failures=0; codes=$(on all "$ask") || codes=unknown ;; # not reached: the state will tell why
      FAILED)
        failures=$((failures + 1))
        [ "$failures" -lt 5 ] || { echo "error: $name did not come up in five tries" >&2; why; return 1; }
        anew
        ;;
      SUSPENDED) anew ;;
      '') create || [ -n "$(state)" ] || [ "$had" = 1 ] || return 1 ;; # gcloud may fail for a while
    esac
    case "$codes" in
      *code=running*) tries=0 ;;
      *code=none* | *code=75*) # fresh, rebooted, or about to be
        tries=$((tries + 1))
        [ "$tries" -le 5 ] || { echo "error: the run did not start in five tries" >&2; return 1; }
        { sync_code && start "$@"; } || true
        ;;
      *code=[!0]*) echo "error: the run ended with ${codes//$'\n'/, }; see launch/tpu_vm.sh logs" >&2; return 1 ;;
      *code=0*) echo "the run on $name is finished; launch/tpu_vm.sh delete gives the slice back"; return 0 ;;
    esac
    sleep "$poll"
  done
}

case "$action" in
  create) create ;;
  sync) sync_code ;;
  run) start "$@" ;;
  watch) watch "$@" ;;
  exec) on all "cd posenc_jax && .venv/bin/python -m posenc_jax $(quoted "$@")" ;;
  logs) on "$worker" 'tail -n 100 -F posenc_jax/run.log' ;;
  status) queue describe "$name" --format 'value(state.state)' && on all "$ask" ;;
  stop) on all "$end" ;;
  delete) delete ;;
esac
