# SPDX-License-Identifier: Apache-2.0
"""What the integration tests share: the mounted daemon, client processes, C helpers, contents."""
