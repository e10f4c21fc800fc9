/* SPDX-License-Identifier: Apache-2.0 */
/* What ping(8) does, RFC 792; root may. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote.h"

#define ECHO_BYTES 64
#define LIMIT_S 2

static uint16_t checksum(const void *bytes, size_t len)
{
	const uint16_t *words = bytes;
	uint32_t sum = 0;

	for (size_t k = 0; k < len / 2; k++)
		sum += words[k];
	sum = (sum >> 16) + (sum & 0xffff);
	return (uint16_t)~(sum + (sum >> 16));
}

/* Other answers pass by here as well: a raw socket sees all. */
static int await_answer(int fd, uint16_t seq)
{
	_Alignas(4) char packet[ECHO_BYTES + 60];

	for (;;) {
		ssize_t n = recv(fd, packet, sizeof(packet), 0);
		if (n < 0)
			return -errno;
		size_t head = (size_t)(packet[0] & 0xf) * 4;
		struct icmphdr h;
		if ((size_t)n < head + sizeof(h))
			continue;
		memcpy(&h, packet + head, sizeof(h));
		if (h.type == ICMP_ECHOREPLY && h.un.echo.id == htons((uint16_t)getpid()) &&
		    h.un.echo.sequence == htons(seq))
			return 0;
	}
}

static int echo_once(int fd, uint16_t seq)
{
	_Alignas(4) char packet[ECHO_BYTES] = {0};
	struct icmphdr h = {.type = ICMP_ECHO};

	h.un.echo.id = htons((uint16_t)getpid());
	h.un.echo.sequence = htons(seq);
	memcpy(packet, &h, sizeof(h));
	h.checksum = checksum(packet, sizeof(packet));
	memcpy(packet, &h, sizeof(h));
	return send(fd, packet, sizeof(packet), 0) < 0 ? -errno : await_answer(fd, seq);
}

int remote_rtt(const struct remote *r)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	const struct timeval limit = {.tv_sec = LIMIT_S};
	int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	int rc = 0;

	if (inet_pton(AF_INET, r->dir, &to.sin_addr) != 1)
		rc = -EINVAL;
	else if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ||
		 connect(fd, (const struct sockaddr *)&to, sizeof(to)))
		rc = -errno;
	for (uint32_t k = 0; !rc && k < r->count; k++) {
		uint64_t begin_ns = bench_now_ns();
		rc = echo_once(fd, (uint16_t)k);
		if (!rc)
			printf("%llu\n", (unsigned long long)(bench_now_ns() - begin_ns));
	}
	if (fd >= 0)
		close(fd);
	return rc ? bench_fail(rc, "ICMP echo of %s", r->dir) : 0;
}
