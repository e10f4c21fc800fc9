/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hex.h"
#include "base/log.h"
#include "mcfs/peer.h"

#define FILE_BYTES 4096 /* more than that is no key file */

static int parse(const char *text, size_t len, uint8_t out[PEER_KEY_BYTES])
{
	while (len && isspace((unsigned char)*text))
		text++, len--;
	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	if (len != 2 * PEER_KEY_BYTES)
		return -EINVAL;
	for (size_t k = 0; k < PEER_KEY_BYTES; k++)
		if (hex_byte(text + 2 * k) < 0)
			return -EINVAL;
	for (size_t k = 0; k < PEER_KEY_BYTES; k++)
		out[k] = (uint8_t)hex_byte(text + 2 * k);
	return 0;
}

/* Bytes, or -errno (logged). */
static ssize_t read_private(const char *path, char *buf, size_t room)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	size_t len = 0;

	if (fd < 0 || fstat(fd, &st)) {
		int rc = -errno;
		log_error("key=%s: cannot be read: %m", path);
		return rc;
	}
	if (!S_ISREG(st.st_mode)) {
		log_error("key=%s: not a file", path);
		return -EINVAL;
	}
	if (st.st_mode & (S_IRWXG | S_IRWXO)) {
		log_error("key=%s: mode %04o lets others than its owner use it: chmod 600", path,
			  (unsigned)(st.st_mode & 07777));
		return -EACCES;
	}
	while (len < room) {
		ssize_t n = read(fd, buf + len, room - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int rc = -errno;
			log_error("key=%s: cannot be read: %m", path);
			return rc;
		}
		if (!n)
			break;
		len += (size_t)n;
	}
	return (ssize_t)len;
}

int peer_key_read(const char *path, uint8_t key_out[PEER_KEY_BYTES])
{
	char text[FILE_BYTES] = { 0 };
	ssize_t len = read_private(path, text, sizeof(text));

	if (len < 0)
		return (int)len;
	int rc = parse(text, (size_t)len, key_out);
	if (rc)
		log_error("key=%s: not %d hexadecimal digits", path, 2 * PEER_KEY_BYTES);
	OPENSSL_cleanse(text, sizeof(text));
	return rc;
}
