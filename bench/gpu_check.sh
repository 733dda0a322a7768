#!/usr/bin/env bash
# The 1B model's step on one GPU by attention kernel, in less than 8 minutes: docs/gpu.md.
#
#   bash bench/gpu_check.sh --fetch [DIR]   # where there is a network: the wheels to carry along
#   bash bench/gpu_check.sh --plan          # with the extra `plan`: what one H200 should take
#   bash bench/gpu_check.sh                 # where the GPU is: writes gpu.json and gpu.md
#   bash bench/gpu_check.sh --small         # the same way through, on a CPU
#
# Results are in runs/gpu, or in --dir=DIR. Wheels are in runs/gpu/wheels, or in $WHEELS.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
[ -x "$python" ] || python=$(command -v python3)
wheels=${WHEELS:-runs/gpu/wheels}

if [ "${1:-}" = --fetch ]; then
    wheels=${2:-$wheels}
    # Pure Python, and not in every GPU image; what they need in turn comes with JAX and Orbax.
    exec "$python" -m pip download --no-deps --dest "$wheels" -c constraints.txt ml-collections tqdm
fi

if ! "$python" -c 'import ml_collections, tqdm' 2> /dev/null; then
    site=$(mktemp -d)
    "$python" -m pip install --quiet --no-index --no-deps --target "$site" "$wheels"/*.whl
    export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
fi
exec "$python" -m bench.gpu_check "$@"
