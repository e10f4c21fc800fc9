/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_script.h"

#include "mcfs/directory.h"
#include "redis.h"

_Static_assert(DIRECTORY_N_SCRIPTS <= REDIS_SCRIPTS_MAX, "a connection remembers the digest of each");
_Static_assert(DIRECTORY_DIR == 2 && DIRECTORY_TOMBSTONE == 4 && DIRECTORY_HOLDERS_MAX == 16 &&
		       DIRECTORY_TOMBSTONE_S == 604800,
	       "the numbers that stand in the scripts");

#define NEWER                                                 \
	"local function newer(a, b)\n"                        \
	"  local ah, al = struct.unpack('>I4I4', a)\n"        \
	"  local bh, bl = struct.unpack('>I4I4', b)\n"        \
	"  if ah ~= bh then return ah > bh and 1 or -1 end\n" \
	"  return al == bl and 0 or (al > bl and 1 or -1)\n"  \
	"end\n"

/* 14 bytes: no value is shorter. One that is, or a tombstone whose time is over, counts as nothing. */
#define OLD                                                                                 \
	NEWER "local byte, sub, char = string.byte, string.sub, string.char\n"              \
	      "local function now() return tonumber(redis.call('TIME')[1]) end\n"           \
	      "local function lapsed(v)\n"                                                  \
	      "  return byte(v, 9) == 4 and now() - struct.unpack('>I4', v, 11) > 604800\n" \
	      "end\n"                                                                       \
	      "local function holder(v, slot)\n"                                            \
	      "  for i = #v - 2 * byte(v, 10) + 1, #v - 1, 2 do\n"                          \
	      "    if sub(v, i, i + 1) == slot then return i end\n"                         \
	      "  end\n"                                                                     \
	      "end\n"                                                                       \
	      "local key, field = KEYS[1], ARGV[1]\n"                                       \
	      "local old = redis.call('HGET', key, field)\n"                                \
	      "if old and (#old < 14 or lapsed(old)) then old = false end\n"

/*
 * What shows the same - one object, two directories, two files of one size where the caller says that such are copies -
 * gains a holder, and the attributes of the later one; copies keep the object that their first holders have.
 */
static const char announce[] = OLD
	"local function varint(v, i)\n"
	"  local j = i\n"
	"  while j < #v and byte(v, j) >= 128 do j = j + 1 end\n"
	"  return sub(v, i, j)\n"
	"end\n"
	"local function body(v) return sub(v, 11, #v - 2 * byte(v, 10)) end\n"
	"local new = ARGV[2]\n"
	"if old then\n"
	"  local was, is = byte(old, 9), byte(new, 9)\n"
	"  local order = newer(new, old)\n"
	"  local is_same = was == is and (is == 2 or sub(old, 11, 18) == sub(new, 11, 18))\n"
	"  local is_copy = was == 1 and is == 1 and ARGV[3] == '1' and varint(old, 19) == varint(new, 19)\n"
	"  if is_same or is_copy then\n"
	"    local head = (is_same and order > 0) and new or old\n"
	"    local n, slot = byte(old, 10), sub(new, -2)\n"
	"    local holders = sub(old, #old - 2 * n + 1)\n"
	"    if n < 16 and not holder(old, slot) then\n"
	"      holders, n = holders .. slot, n + 1\n"
	"    end\n"
	"    new = sub(head, 1, 9) .. char(n) .. body(head) .. holders\n"
	"    if new ~= old then redis.call('HSET', key, field, new) end\n"
	"    return {0, old}\n"
	"  end\n"
	"  if order <= 0 or (was ~= 4 and (was == 2) ~= (is == 2)) then return {1, old} end\n"
	"end\n"
	"redis.call('HSET', key, field, new)\n"
	"return {0, old}\n";

static const char retract[] = OLD
	"local is_it = old and byte(old, 9) ~= 4 and (ARGV[3] == '' or sub(old, 11, 18) == ARGV[3])\n"
	"local at = is_it and holder(old, ARGV[2])\n"
	"if at then\n"
	"  local n = byte(old, 10)\n"
	"  if n == 1 then\n"
	"    redis.call('HDEL', key, field)\n"
	"  else\n"
	"    redis.call('HSET', key, field,\n"
	"      sub(old, 1, 9) .. char(n - 1) .. sub(old, 11, at - 1) .. sub(old, at + 2))\n"
	"  end\n"
	"end\n"
	"return {0, old}\n";

/* Looks at some other fields each time, so tombstones of names that nobody touches go, too. */
static const char remove_[] = OLD
	"if old then\n"
	"  local order = newer(ARGV[2], old)\n"
	"  if order == 0 and byte(old, 9) == 4 then return {0, old} end\n"
	"  if order <= 0 then return {1, old} end\n"
	"end\n"
	"redis.call('HSET', key, field, ARGV[2] .. char(4, 0) .. struct.pack('>I4', now()))\n"
	"local some = redis.call('HRANDFIELD', key, 4, 'WITHVALUES')\n"
	"for i = 1, #some, 2 do\n"
	"  if #some[i + 1] >= 14 and lapsed(some[i + 1]) then redis.call('HDEL', key, some[i]) end\n"
	"end\n"
	"return {0, old}\n";

static const char claim[] =
	"local there = redis.call('HGET', KEYS[1], ARGV[1])\n"
	"if there and string.sub(there, 1, 8) ~= ARGV[2] and there ~= ARGV[3] then return 0 end\n"
	"local seconds = tonumber(redis.call('TIME')[1])\n"
	"redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. struct.pack('>I4', seconds))\n"
	"return 1\n";

static const char take[] = NEWER
	"local there = redis.call('GET', KEYS[1])\n"
	"if there and (#there < 16 or string.sub(there, 1, 8) ~= string.sub(ARGV[1], 1, 8) or\n"
	"    newer(string.sub(there, 9), string.sub(ARGV[1], 9)) > 0) then\n"
	"  return there\n"
	"end\n"
	"redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n"
	"return false\n";

/* A server that is out of memory still lets a lease be longer. */
static const char renew[] =
	"local there = redis.call('GET', KEYS[1])\n"
	"if not there then return 0 end\n"
	"if string.sub(there, 1, 16) ~= string.sub(ARGV[1], 1, 16) then return there end\n"
	"local refusal = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]).err\n"
	"if not refusal then return 1 end\n"
	"redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
	"return {1, refusal}\n";

static const char release[] =
	"local there = redis.call('GET', KEYS[1])\n"
	"if not there or string.sub(there, 1, 16) ~= string.sub(ARGV[1], 1, 16) then return 0 end\n"
	"redis.call('DEL', KEYS[1])\n"
	"return 1\n";

static const char letter[] =
	"local max, ms = string.match(ARGV[4], '(%d+) (%d+)')\n"
	"if redis.call('XLEN', KEYS[1]) >= tonumber(max) then return 0 end\n"
	"redis.call('XADD', KEYS[1], '*', 't', ARGV[1], 'i', ARGV[2], 'b', ARGV[3])\n"
	"redis.call('PEXPIRE', KEYS[1], ms)\n"
	"return 1\n";

const char *const directory_scripts[DIRECTORY_N_SCRIPTS] = {
	[DIRECTORY_ANNOUNCE] = announce, [DIRECTORY_RETRACT] = retract, [DIRECTORY_REMOVE] = remove_,
	[DIRECTORY_CLAIM] = claim,	 [DIRECTORY_TAKE] = take,	[DIRECTORY_RENEW] = renew,
	[DIRECTORY_RELEASE] = release, [DIRECTORY_LETTER] = letter,
};
