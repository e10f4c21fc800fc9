/* SPDX-License-Identifier: Apache-2.0 */
/* address: "HOST:PORT" of the transports, where a listener may ask for port 0. Thread safe. */
#ifndef TRANSPORT_ADDRESS_H
#define TRANSPORT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host_port.h"
#include "mcfs/transport.h"

/* As host_port_split, with port 0 too. -EINVAL. */
int address_split(const char *text, char host_out[HOST_BYTES], uint16_t *port_out);
/* Brackets around an IPv6 host. -ENAMETOOLONG. */
int address_join(const char *host, uint16_t port, char out[TRANSPORT_ADDRESS_BYTES]);

/* "localhost", 127.0.0.0/8 or ::1. Nothing is looked up. */
bool address_host_is_loopback(const char *host);
/* 0.0.0.0 or ::, which stand for every address of this machine. */
bool address_host_is_any(const char *host);

#endif
