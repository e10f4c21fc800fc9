# SPDX-License-Identifier: Apache-2.0
"""The group cluster of tests/bench/run.sh: several nodes on one machine, each with a network of its own."""
