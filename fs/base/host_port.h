/* SPDX-License-Identifier: Apache-2.0 */
/* host_port: "HOST:PORT" as people write it; an IPv6 address in brackets. Thread safe. */
#ifndef MCFS_HOST_PORT_H
#define MCFS_HOST_PORT_H

#define HOST_BYTES 256 /* a DNS name has at most 253 characters */
#define PORT_BYTES 6

/*
 * Splits text. Nothing is looked up. -EINVAL: no host, no port, or a port that is no number from 1 to
 * 65535; outputs are then untouched.
 */
int host_port_split(const char *text, char host_out[HOST_BYTES], char port_out[PORT_BYTES]);

#endif
