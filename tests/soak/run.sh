#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh - what takes longer than a check
#
# usage: tests/soak/run.sh [crash|power|steady|cluster]...
#
#   MCFS_ROUNDS  crashes of each kind (default 1000); a series of some of them begins anew
#   MCFS_SEED    seed of the first series (default 1), each further one is one higher
#   MCFS_MINUTES how long steady and cluster last (default 30)
#   MCFS_BUILD   build tree (default build)
#   PYTHON       a python3 with pytest (default: the first of PATH's and /usr/bin's)
#
#   crash   the daemon is killed under load       tests/integration/test_crash.py
#   power   the power fails under load            tests/integration/test_power_loss.py
#   cluster nodes and their directory fail under load  tests/integration/test_cluster_faults.py, by MCFS_SEED
#   steady  memory, descriptors, slab stay flat   tests/integration/test_steady.py
#
# Ends at the first failure, which says how to run its series again.

set -euo pipefail

cd -- "$(dirname -- "$0")/../.."

python=${PYTHON:-}
if [ -z "$python" ]; then
	python=python3
	"$python" -c 'import pytest' 2>/dev/null || python=/usr/bin/python3
fi

[ $# -gt 0 ] || set -- crash power steady
tests=()
for kind in "$@"; do
	case $kind in
	crash) tests+=(tests/integration/test_crash.py) ;;
	power) tests+=(tests/integration/test_power_loss.py) ;;
	steady) tests+=(tests/integration/test_steady.py) ;;
	cluster)
		tests+=(tests/integration/test_cluster_faults.py)
		export MCFS_LONG=1
		;;
	*)
		echo "run.sh: unknown kind '$kind': crash, power, steady or cluster" >&2
		exit 2
		;;
	esac
done

export MCFS_ROUNDS=${MCFS_ROUNDS:-1000} MCFS_MINUTES=${MCFS_MINUTES:-30}
exec "$python" -m pytest "${tests[@]}" -k under_load -x -q -rsP --color=no -p no:cacheprovider
