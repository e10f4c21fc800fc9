/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/redis_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define START_S 10
#define ARGS_MAX 16

static void must(bool condition, const char *what)
{
	if (!condition) {
		fprintf(stderr, "redis_server: %s: %s\n", what, strerror(errno));
		abort();
	}
}

static int64_t seconds_from_now(int s)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (ts.tv_sec + s) * NS_PER_S + ts.tv_nsec;
}

static const char *program(void)
{
	static const char *const names[] = {"/usr/bin/valkey-server", "/usr/bin/redis-server",
					    "/usr/local/bin/valkey-server", "/usr/local/bin/redis-server"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!access(names[i], X_OK))
			return names[i];
	return NULL;
}

const char *redis_server_missing(void)
{
	return program() ? NULL : "needs valkey-server or redis-server";
}

static uint16_t free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	must(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof(a)), "bind");
	must(!getsockname(fd, (struct sockaddr *)&a, &len), "getsockname");
	close(fd);
	return ntohs(a.sin_port);
}

static void server_exec(struct redis_server *s, pid_t parent)
{
	char port[8];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || chdir(s->top))
		_exit(127);
	int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (log < 0)
		_exit(127);
	dup2(log, 1);
	dup2(log, 2);
	snprintf(port, sizeof(port), "%u", s->port);
	execl(program(), program(), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
	      *s->password ? "--requirepass" : "--databases", *s->password ? s->password : "16", (char *)NULL);
	_exit(127);
}

void redis_server_start(struct redis_server *s)
{
	struct redis_reply reply;
	struct redis_address a = {.port = s->port, .host = "127.0.0.1"};
	int64_t deadline_ns = seconds_from_now(START_S);
	pid_t parent = getpid();
	int rc;

	snprintf(a.password, sizeof(a.password), "%s", s->password);
	s->pid = fork();
	must(s->pid >= 0, "fork");
	if (!s->pid)
		server_exec(s, parent);
	do {
		usleep(5000);
		rc = redis_connect(s->client, &a, NULL, deadline_ns);
		if (!rc)
			rc = redis_run(s->client, 1, (const char *[]){"PING"}, NULL, deadline_ns, &reply);
		must(seconds_from_now(0) < deadline_ns, redis_text(s->client));
	} while (rc);
}

void redis_server_init(struct redis_server *s, const char *password)
{
	*s = (struct redis_server){.port = free_port()};
	snprintf(s->top, sizeof(s->top), "/tmp/mcfs-redis-XXXXXX");
	must(mkdtemp(s->top) != NULL, "mkdtemp");
	snprintf(s->password, sizeof(s->password), "%s", password ? password : "");
	snprintf(s->url, sizeof(s->url), "redis://127.0.0.1:%u", s->port);
	s->client = redis_create(-1);
	must(s->client != NULL, "redis_create");
	redis_server_start(s);
}

void redis_server_kill(struct redis_server *s)
{
	if (s->pid) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
	}
	s->pid = 0;
	redis_disconnect(s->client);
}

void redis_server_fini(struct redis_server *s)
{
	char command[128];

	redis_server_kill(s);
	redis_destroy(s->client);
	snprintf(command, sizeof(command), "rm -rf %s", s->top);
	must(system(command) == 0, "rm");
}

void redis_server_freeze(struct redis_server *s)
{
	must(!kill(s->pid, SIGSTOP), "SIGSTOP");
}

void redis_server_thaw(struct redis_server *s)
{
	must(!kill(s->pid, SIGCONT), "SIGCONT");
}

int redis_server_run_bytes(struct redis_server *s, struct redis_reply *reply_out, size_t argc,
			   const char *const *argv, const size_t *lens)
{
	return redis_run(s->client, argc, argv, lens, seconds_from_now(START_S), reply_out);
}

int redis_server_run(struct redis_server *s, struct redis_reply *reply_out, ...)
{
	const char *argv[ARGS_MAX];
	size_t n = 0;
	va_list ap;

	va_start(ap, reply_out);
	while (n < ARGS_MAX && (argv[n] = va_arg(ap, const char *)))
		n++;
	va_end(ap);
	return redis_server_run_bytes(s, reply_out, n, argv, NULL);
}

int64_t redis_server_integer(struct redis_server *s, const char *command, const char *key)
{
	struct redis_reply reply;
	int rc = redis_server_run(s, &reply, command, key, NULL);

	must(!rc && reply.kind == REDIS_INTEGER, command);
	return reply.integer;
}

int64_t redis_server_info(struct redis_server *s, const char *section, const char *field)
{
	struct redis_reply reply;
	int rc = redis_server_run(s, &reply, "INFO", section, NULL);

	must(!rc && reply.kind == REDIS_BYTES, "INFO");
	const char *at = strstr((const char *)reply.bytes, field);
	return at && at[strlen(field)] == ':' ? strtoll(at + strlen(field) + 1, NULL, 10) : -1;
}
