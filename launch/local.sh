#!/usr/bin/env bash
# Runs one command of posenc_jax on this machine; see --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: launch/local.sh [--dry-run] [--processes N] COMMAND ...

Runs `python -m posenc_jax COMMAND ...` with the repository's .venv, which is made first where it is missing.

  --dry-run       print what would be done, and do nothing
  --processes N   start N processes of one run here, which meet on a port of this machine; all end when one fails
  RESTART=1       run the command again as long as it ends with exit code 75 (interrupted, everything saved)
  PYTHON=...      the interpreter .venv is made from (python3)
  PORT=...        where N processes meet (one derived from this script's process number)
  CODE_FILE=...   a file that gets the exit code at the end

  RESTART=1 launch/local.sh pretrain --config configs/tupe.py:tupe_r,tiny --data out/rows --workdir out/run

Ctrl-C and SIGTERM reach the command as SIGTERM, and are the end of it: nothing is restarted after them. 134 is what
JAX ends a process with when it has lost another one; with RESTART=1 it is run again too, ten times at most.
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
preempted=75 lost=134 most_lost=10
grace=${GRACE:-30} # seconds which the others have, after one has failed, to end by themselves
dry_run=0 processes=1
while true; do
  case "${1:-}" in
    -h | --help) usage; exit 0 ;;
    --dry-run) dry_run=1; shift ;;
    --processes) processes=${2:-}; shift; shift || true ;;
    --processes=*) processes=${1#*=}; shift ;;
    -*) echo "error: no option '$1'; see launch/local.sh --help" >&2; exit 2 ;;
    *) break ;;
  esac
done
if [ $# -eq 0 ]; then
  usage >&2
  exit 2
fi
if ! [[ $processes =~ ^[1-9][0-9]*$ ]]; then
  echo "error: --processes '$processes' is no number of processes" >&2
  exit 2
fi

if [ "$processes" != 1 ] && [ "$1" != pretrain ]; then
  echo "error: --processes $processes is for pretrain; '$1' runs in one process: leave it out" >&2
  exit 2
fi

install=(make -C "$root" .venv/.runtime)
command=("$root/.venv/bin/python" -m posenc_jax "$@")
port=${PORT:-$((20000 + $$ % 20000))}

# Sets `line` to the command of process $1.
line_of() {
  line=("${command[@]}")
  [ "$processes" = 1 ] || line+=(--coordinator "127.0.0.1:$port" --processes "$processes" --process-id "$1")
}

if [ "$dry_run" = 1 ]; then
  [ -e "$root/.venv/.runtime" ] || printf '%s\n' "${install[*]@Q}"
  for ((i = 0; i < processes; i++)); do
    line_of "$i"
    if [ "$processes" = 1 ]; then printf '%s\n' "${line[*]@Q}"; else printf '%s &\n' "${line[*]@Q}"; fi
  done
  [ "$processes" = 1 ] || echo wait
  [ "${RESTART:-0}" != 1 ] || echo "# again while it ends with exit code $preempted"
  exit 0
fi

[ -e "$root/.venv/.runtime" ] || "${install[@]}"
if [ "${RESTART:-0}" != 1 ] && [ "$processes" = 1 ] && [ -z "${CODE_FILE:-}" ]; then
  exec "${command[@]}"
fi

[ -z "${CODE_FILE:-}" ] || trap 'echo $? >"$CODE_FILE"' EXIT
stop=0 pids=()
pass_on() { [ ${#pids[@]} -eq 0 ] || kill "-$1" "${pids[@]}" 2>/dev/null || true; }
trap 'stop=1; pass_on TERM' INT TERM

# Starts all and waits for all. `code`: of the one that is at fault, which is neither of those that lost it.
run_once() {
  local i status failed_at='' asked=0
  code=0 pids=()
  for ((i = 0; i < processes; i++)); do
    line_of "$i"
    "${line[@]}" &
    pids+=("$!")
  done
  while [ ${#pids[@]} -gt 0 ]; do
    for i in "${!pids[@]}"; do
      if kill -0 "${pids[$i]}" 2>/dev/null; then continue; fi
      status=0
      wait "${pids[$i]}" || status=$?
      unset "pids[$i]"
      [ "$status" != 0 ] || continue
      [ -n "$failed_at" ] || failed_at=$SECONDS
      if [ "$code" = 0 ] || [ "$code" = "$lost" ] || { [ "$code" = "$preempted" ] && [ "$status" != "$lost" ]; }; then
        code=$status
      fi
    done
    if [ -n "$failed_at" ] && [ "$asked" = 0 ] && ((SECONDS - failed_at >= grace)); then
      asked=1
      pass_on TERM
    elif [ -n "$failed_at" ] && ((SECONDS - failed_at >= 2 * grace)); then
      pass_on KILL
    fi
    sleep 0.1
  done
}

losses=0
while true; do
  run_once
  if [ "$stop" = 1 ] || [ "${RESTART:-0}" != 1 ]; then exit "$code"; fi
  case "$code" in
    "$preempted") ;;
    "$lost") losses=$((losses + 1)); [ "$losses" -le "$most_lost" ] || exit "$code" ;;
    *) exit "$code" ;;
  esac
  echo "ended with exit code $code; running the same line again" >&2
done
