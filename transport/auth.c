/* SPDX-License-Identifier: Apache-2.0 */
#include "auth.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

#define LABEL_BYTES 16

/* What an HMAC covers: a label that is another for each direction, the version, both messages without HMAC. */
#define COVERED_BYTES (LABEL_BYTES + 4 + WIRE_HELLO_BYTES + WIRE_WELCOME_BYTES)

static int fill_nonce(uint8_t nonce[WIRE_NONCE_BYTES])
{
	ssize_t n;

	do {
		n = getrandom(nonce, WIRE_NONCE_BYTES, 0);
	} while (n < 0 && errno == EINTR);
	if (n == WIRE_NONCE_BYTES)
		return 0;
	log_error("peer: no random numbers for a nonce: %m");
	return -EIO;
}

static void compute(const struct auth *a, const char *label, const struct wire_hello *h,
		    const struct wire_welcome *w, uint8_t out[WIRE_MAC_BYTES])
{
	uint8_t covered[COVERED_BYTES] = { 0 }, *at = covered;
	struct wire_welcome bare = *w;
	unsigned int len = WIRE_MAC_BYTES;

	memset(out, 0, WIRE_MAC_BYTES);
	if (!a->key)
		return;
	strncpy((char *)at, label, LABEL_BYTES - 1);
	at += LABEL_BYTES;
	at += wire_u32_encode(PEER_PROTOCOL, at);
	memset(bare.mac, 0, sizeof(bare.mac));
	wire_hello_encode(h, at); /* was decoded, or filled by auth_begin: cannot fail */
	at += WIRE_HELLO_BYTES;
	wire_welcome_encode(&bare, at);
	if (!HMAC(EVP_sha256(), a->key, PEER_KEY_BYTES, covered, sizeof(covered), out, &len)) {
		/* Compares with nothing that a peer could send. */
		log_error("peer: HMAC-SHA256 failed");
		if (fill_nonce(out))
			memset(out, 0xff, WIRE_MAC_BYTES);
	}
}

/* ---- asker ---- */

int auth_begin(const struct auth *a, enum wire_role role, const struct peer_id *to, struct wire_hello *out)
{
	struct wire_hello h = { .role = (uint8_t)role, .has_key = a->key, .from = a->self, .to = *to };
	int rc = fill_nonce(h.nonce);

	if (rc)
		return rc;
	memcpy(h.cluster, a->cluster, sizeof(h.cluster));
	*out = h;
	return 0;
}

int auth_check_welcome(const struct auth *a, const struct wire_hello *h, const struct wire_welcome *w)
{
	uint8_t mac[WIRE_MAC_BYTES];

	if (w->has_key != !!a->key)
		return -EACCES;
	compute(a, "mcfs holder", h, w, mac);
	if (CRYPTO_memcmp(mac, w->mac, sizeof(mac)))
		return -EACCES;
	return peer_id_is_same(&w->id, &h->to) ? 0 : -ESTALE;
}

void auth_prove(const struct auth *a, const struct wire_hello *h, const struct wire_welcome *w,
		uint8_t mac_out[WIRE_MAC_BYTES])
{
	compute(a, "mcfs asker", h, w, mac_out);
}

/* ---- holder ---- */

int auth_answer(const struct auth *a, const struct wire_hello *h, struct wire_welcome *out)
{
	struct wire_welcome w = { .has_key = a->key, .id = a->self };

	if (h->has_key != !!a->key || memcmp(h->cluster, a->cluster, sizeof(h->cluster)))
		return -EACCES;
	if (!peer_id_is_same(&h->to, &a->self))
		return -ESTALE;
	int rc = fill_nonce(w.nonce);
	if (rc)
		return rc;
	compute(a, "mcfs holder", h, &w, w.mac);
	*out = w;
	return 0;
}

int auth_check_proof(const struct auth *a, const struct wire_hello *h, const struct wire_welcome *w,
		     const uint8_t mac[WIRE_MAC_BYTES])
{
	uint8_t expected[WIRE_MAC_BYTES];

	compute(a, "mcfs asker", h, w, expected);
	return CRYPTO_memcmp(expected, mac, sizeof(expected)) ? -EACCES : 0;
}
