/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a submission and as what its buffer holds. Decoding must not go wrong, and an item it lets
 * through must lie within what is registered and have a name that a file can have.
 *
 * Input: a struct mcfs_submit, then the start of the buffer. Tried as it is, and once more with the fields
 * that nearly all of it would fail at brought into range.
 */
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "fastpath/batch.h"
#include "lib/fp_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES (UINT64_C(1) << 16)

static struct fs_box box;
static struct fp_client c;
static struct fp_buffer part; /* its middle is registered */

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void end(void)
{
	fp_buffer_close(&box, &part);
	fp_close(&c);
	fs_box_close(&box);
}

/* The engine ends without atexit: what the box leaves in a tmpfs of our own goes all the same. */
static void hide_files(void)
{
	if (geteuid() == 0 && !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		mount("fuzz", "/dev/shm", "tmpfs", 0, NULL);
}

static void begin(void)
{
	hide_files();
	fs_box_open(&box);
	fp_open(&c, &box, fp_root(), BYTES);
	fp_buffer_open(&box, "part", 0, BYTES, &part);
	must(fp_register(&c, &part, 8192, 16384) == 0);
	atexit(end);
}

static bool is_name(const char *name, size_t len)
{
	return len >= 1 && len <= 255 && strlen(name) == len && !strchr(name, '/') &&
	       strcmp(name, ".") && strcmp(name, "..");
}

static void check_item(const struct batch *b, const struct mcfs_item *i, const struct target *t)
{
	if (i->status || !t->reg)
		return;
	__extension__ typedef unsigned __int128 wide;
	wide end_off = (wide)i->base + i->segment_bytes;
	if (i->segment_count > 1)
		end_off += (wide)i->stride * (i->segment_count - 1);
	if (i->segment_count)
		must(i->base >= t->reg->offset && end_off <= (wide)t->reg->offset + t->reg->length);
	else
		must(b->io.op == MCFS_OP_WRITE || b->io.op == MCFS_OP_PREFETCH);
	must(i->segment_count <= 1 || i->stride >= i->segment_bytes);
	must(i->segment_count <= SESSION_MAX_SEGMENTS && !i->reserved && i->mode <= 07777);
	must(!t->name || is_name(t->name, t->name_len));
	must(t->name || b->io.op != MCFS_OP_WRITE);
}

static void try(const struct mcfs_submit *io)
{
	struct batch *b;

	if (!batch_create(c.session, io, &b)) {
		for (uint32_t k = 0; b->items && k < b->io.n_items; k++)
			check_item(b, &b->items[k], &b->targets[k]);
		must(!b->states || b->io.items + b->io.n_items * sizeof(*b->states) <= BYTES);
		batch_destroy(b);
	}
	must(!c.session->regs[0].n_users && !c.session->regs[1].n_users);
	must(!box.fs.batch_bytes && c.session->refs == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mcfs_submit io;

	if (!c.session)
		begin();
	if (size < sizeof(io))
		return 0;
	memcpy(&io, data, sizeof(io));
	size -= sizeof(io);
	size_t n = size < BYTES ? size : BYTES;
	memcpy(c.main.mem, data + sizeof(io), n);
	memset(c.main.mem + n, 0, BYTES - n);
	try(&io);
	io.op = 1 + io.op % 4;
	io.flags &= io.op == MCFS_OP_WRITE ? 3 : 1;
	io.buffer = 1 + io.buffer % 2;
	io.n_items = 1 + io.n_items % 64;
	io.items = io.items % BYTES & ~UINT64_C(7);
	io.suffix_bytes %= 65;
	io.suffix %= BYTES;
	io.deadline_us = io.reserved = 0;
	io.reserved2[0] = io.reserved2[1] = 0;
	if (io.op == MCFS_OP_LOOKUP) {
		io.names %= BYTES;
		io.name_kind &= 1;
		io.name_bytes = io.name_kind ? 1 + io.name_bytes % 64 : 0;
		io.names_bytes = io.name_kind ? io.n_items * io.name_bytes : io.names_bytes % BYTES;
	} else {
		io.directory = io.names = io.names_bytes = io.name_kind = io.name_bytes = 0;
	}
	try(&io);
	return 0;
}
